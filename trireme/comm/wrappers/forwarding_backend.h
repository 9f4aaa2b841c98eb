// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/backend.h"

namespace trireme::detail {

/// A backend that forwards to an inner one. Wrappers override only what they change.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::shared_ptr<Backend> inner)
      : Backend(inner->rank(), inner->size(), inner->timeout()), inner_(std::move(inner)) {
    identity = inner_->identity;
    Backend::join(inner_->progress_group());
  }

  const std::string& name() const override { return inner_->name(); }
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    return inner_->supports(op, dtype, device);
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override {
    return inner_->supports(op, dtype);
  }
  bool wait_orders_streams(at::DeviceType device) const override {
    return inner_->wait_orders_streams(device);
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return inner_->empty(sizes, options);
  }
  at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) override {
    return inner_->shared(sizes, options, owner);
  }
  Token post(const Call& call) override { return inner_->post(call); }
  void wait(Token token, Duration timeout) override { inner_->wait(token, timeout); }
  bool completed(Token token) override { return inner_->completed(token); }
  int source(Token token) override { return inner_->source(token); }
  int64_t shared_bytes() const override { return inner_->shared_bytes(); }
  void progress() override { inner_->progress(); }
  void abort(const std::string& why, AbortKind kind) override { inner_->abort(why, kind); }
  bool on_stall(std::function<void()> look) override { return inner_->on_stall(std::move(look)); }
  bool mixes_up_calls() const override { return inner_->mixes_up_calls(); }
  std::unique_ptr<WaitBoard> make_board() override { return inner_->make_board(); }
  void when_complete(Token token, std::function<void()> done) override {
    inner_->when_complete(token, std::move(done));
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    return inner_->subgroup(members, name);
  }
  void join(std::shared_ptr<ProgressGroup> progress_group) override {
    inner_->join(progress_group);
    Backend::join(std::move(progress_group));
  }

 protected:
  const std::shared_ptr<Backend> inner_;
};

}  // namespace trireme::detail
