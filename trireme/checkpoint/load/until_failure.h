// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "trireme/tensor/state.h"

namespace trireme {

/// Shows a walk to another visitor until that throws, keeps the error, and passes over the rest.
/// A walk may make calls that every rank makes (what ZeRO loads it publishes): so it comes to its
/// end also on a rank whose files are damaged.
class UntilFailure final : public ForwardingVisitor {
 public:
  /// passed_over(tensors that the walk has shown so far): at the failure, at each tensor after it,
  /// and at the walk's end (then SIZE_MAX). Throws nothing.
  UntilFailure(StateVisitor& inner, std::function<void(size_t tensors)> passed_over)
      : ForwardingVisitor(inner), passed_over_(std::move(passed_over)) {}
  using StateVisitor::tensor;

  /// The whole walk, and what follows it where nothing has failed. Throws what the visitor threw
  /// first, else what the walk throws by itself, or `behind`.
  void run(const StateWalk& walk, const std::function<void()>& behind) {
    try {
      walk(*this);
      if (!failure_) behind();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    if (!failure_) return;
    passed_over_(SIZE_MAX);
    std::rethrow_exception(failure_);
  }

  void tensor(const Slice& slice, at::Tensor local) override {
    attempt_tensor([&] { inner_.tensor(slice, std::move(local)); });
  }
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override {
    attempt_tensor([&] { inner_.copy_of_rank_0(name, std::move(whole)); });
  }
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override {
    attempt_tensor([&] { inner_.rank_tensor(name, rank, ranks, rule, std::move(local)); });
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
  template <class Body>
  void attempt_tensor(const Body& body) {
    ++tensors_;
    attempt(body);
    if (failure_) passed_over_(tensors_);
  }

  const std::function<void(size_t)> passed_over_;
  size_t tensors_ = 0;
  std::exception_ptr failure_;
};

}  // namespace trireme
