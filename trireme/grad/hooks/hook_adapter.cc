// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/hook_adapter.h"

#include "trireme/base/check.h"

namespace trireme {

HookAdapter::HookAdapter(GradientRound& round, Rounds rounds) : round_(round), rounds_(rounds) {
  for (size_t i = 0; i < round_.size(); ++i) {
    attached_.push_back(attach(i));
    arriving_.emplace_back(round_.parameter(i), [this, i] { arriving(i); });
  }
}

HookAdapter::~HookAdapter() = default;

std::unique_ptr<HookAdapter::Attached> HookAdapter::attach(size_t i) {
  const at::Tensor& p = round_.parameter(i);
  return std::unique_ptr<Attached>(
      new Attached{{p, [this, i] { accumulated(i); }}, {p, [this, i] { return round_.offer(i); }}});
}

void HookAdapter::begin() {
  if (paused_) return;
  if (!round_.is_open()) {
    round_.open();
    auto token = std::make_shared<int>(0);
    backward_ = token;
    compat::on_backward_end([this, token, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired() && round_.is_open()) end();
    });
    giving_ = !gives_ || gives_();
    if (!giving_) drop_gradients();  // of a shape that autograd cannot add to any more
  }
  if (backward_.expired()) [[unlikely]]
    fail<UsageError>(
        "the last backward was broken off by an exception, and ranks may differ since: call "
        "reset() on DistributedDataParallel on every rank before the next one");
}

void HookAdapter::end() {
  hand_over();
  if (!giving_)
    drop_gradients();
  else if (before_close_)
    before_close_();
  round_.close();
  if (!giving_) drop_gradients();
  if (after_close_) after_close_();
}

void HookAdapter::drop_gradients() {
  for (size_t i = 0; i < round_.size(); ++i) round_.parameter(i).mutable_grad() = at::Tensor();
}

std::function<void()> HookAdapter::beginning() {
  return [this, alive = std::weak_ptr<int>(alive_)] {
    if (!alive.expired()) begin();
  };
}

void HookAdapter::accumulated(size_t i) {
  if (paused_) return round_.accumulated_outside(i);
  if (rounds_ == Rounds::automatic) {
    begin();
  } else if (!round_.is_open()) {
    return;  // a backward of somebody else's
  }
  if (giving_) round_.ready(i);
}

// Before p.grad() has the gradient. The engine asked whether there are hooks before it came here:
// one that is added now may be called in this pass, or not. So it is added behind the backward.
void HookAdapter::arriving(size_t i) {
  if (attached_[i]->hook.is_on(round_.parameter(i))) return;
  if (paused_) return round_.accumulated_outside(i);
  if (rounds_ == Rounds::automatic) {
    begin();
  } else if (!round_.is_open()) {
    return;
  } else if (unseen_.empty()) {
    compat::on_backward_end([this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) hand_over();
    });
  }
  unseen_.push_back(i);
}

void HookAdapter::hand_over() {
  const std::vector<size_t> unseen = std::move(unseen_);
  unseen_.clear();
  for (size_t i : unseen)
    if (!attached_[i]->hook.is_on(round_.parameter(i))) attached_[i] = attach(i);
  for (size_t i : unseen)
    if (giving_ && round_.is_open()) round_.ready(i);
}

void HookAdapter::follow() {
  for (size_t i = 0; i < attached_.size(); ++i) {
    const at::Tensor& p = round_.parameter(i);
    if (p.requires_grad() && !attached_[i]->hook.is_on(p)) attached_[i] = attach(i);
  }
}

void HookAdapter::reset() {
  round_.reset();
  unseen_.clear();
  backward_.reset();
}

}  // namespace trireme
