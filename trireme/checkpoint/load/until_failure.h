// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "trireme/tensor/state.h"

namespace trireme {

/// Shows a walk to another visitor until that throws, keeps the error, and passes over the rest.
/// A walk may make calls that every rank makes (what ZeRO loads it publishes): so it comes to its
/// end also on a rank whose files are damaged.
class UntilFailure final : public ForwardingVisitor {
 public:
  using ForwardingVisitor::ForwardingVisitor;
  using StateVisitor::tensor;

  /// The whole walk. Throws what the visitor threw first, else what the walk throws by itself.
  void run(const StateWalk& walk) {
    try {
      walk(*this);
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  void tensor(const Slice& slice, at::Tensor local) override {
    attempt([&] { inner_.tensor(slice, std::move(local)); });
  }
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override {
    attempt([&] { inner_.copy_of_rank_0(name, std::move(whole)); });
  }
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override {
    attempt([&] { inner_.rank_tensor(name, rank, ranks, rule, std::move(local)); });
  }
  void value(const std::string& name, int64_t& v) override {
    attempt([&] { inner_.value(name, v); });
  }
  void value(const std::string& name, double& v) override {
    attempt([&] { inner_.value(name, v); });
  }
  void value(const std::string& name, std::string& v) override {
    attempt([&] { inner_.value(name, v); });
  }
  void constant(const std::string& name, const std::string& v) override {
    attempt([&] { inner_.constant(name, v); });
  }

 private:
  template <class Body>
  void attempt(const Body& body) {
    if (failure_) return;
    try {
      body();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  std::exception_ptr failure_;
};

}  // namespace trireme
