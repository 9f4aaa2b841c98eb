// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hook_adapter.h"

#include "trireme/base/check.h"

namespace trireme {

HookAdapter::HookAdapter(Reducer& reducer, Rounds rounds) : reducer_(reducer), rounds_(rounds) {
  for (size_t i = 0; i < reducer_.size(); ++i)
    hooks_.emplace_back(reducer_.parameter(i), [this, i] { accumulated(i); });
}

HookAdapter::~HookAdapter() = default;

void HookAdapter::accumulated(size_t i) {
  if (paused_) return;
  if (rounds_ == Rounds::automatic) {
    if (!reducer_.is_open()) {
      reducer_.open();
      auto token = std::make_shared<int>(0);
      backward_ = token;
      compat::on_backward_end([this, token, alive = std::weak_ptr<int>(alive_)] {
        if (alive.expired() || !reducer_.is_open()) return;
        reducer_.close();
        if (after_close_) after_close_();
      });
    }
    check<UsageError>(!backward_.expired(),
                      "the last backward was broken off by an exception, and ranks may differ "
                      "since: call reset() on "
                      "DistributedDataParallel on every rank before the next one");
  } else if (!reducer_.is_open()) {
    return;  // a backward of somebody else's
  }
  if (tree_) {
    at::Tensor& grad = reducer_.parameter(i).mutable_grad();
    at::Tensor leaf = std::move(grad);
    grad = at::Tensor();
    check<UsageError>(leaf.defined() && !leaf.requires_grad(),
                      "reproducible mode: no plain gradient of '{}'", reducer_.name(i));
    const at::Tensor& out = reducer_.gradient(i);
    check<UsageError>(leaf.data_ptr() != out.data_ptr(),
                      "reproducible mode: the gradient of '{}' was not set to none before the leaf",
                      reducer_.name(i));
    if (!tree_->add(i, std::move(leaf), out)) return;
    grad = out;
  }
  reducer_.ready(i);
}

void HookAdapter::finish_tree() {
  for (size_t i = 0; i < reducer_.size(); ++i) {
    at::Tensor& grad = reducer_.parameter(i).mutable_grad();
    const at::Tensor& out = reducer_.gradient(i);
    if (grad.defined() && grad.data_ptr() == out.data_ptr()) continue;
    if (!tree_->finish(i, out)) continue;
    grad = out;
    reducer_.ready(i);
  }
}

void HookAdapter::reset() {
  reducer_.reset();
  backward_.reset();
}

}  // namespace trireme
