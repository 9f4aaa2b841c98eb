// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/hook_adapter.h"

#include "trireme/base/check.h"

namespace trireme {

HookAdapter::HookAdapter(GradientRound& round, Rounds rounds)
    : round_(round), rounds_(rounds), outside_(round.size()) {
  for (size_t i = 0; i < round_.size(); ++i) {
    attached_.push_back(attach(i));
    arriving_.emplace_back(round_.parameter(i), [this, i] { on_gradient_arriving(i); });
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
    contributing_ = !contributes_ || contributes_();
    if (!contributing_) drop_gradients();  // their shapes may no longer match the parameters'
  }
  if (backward_.expired()) [[unlikely]]
    fail<UsageError>(
        "the last backward was interrupted by an exception, so ranks may be out of sync: call "
        "reset() on DistributedDataParallel on every rank before the next one");
}

void HookAdapter::end() {
  deliver_unseen();
  if (!contributing_)
    drop_gradients();
  else if (before_close_)
    before_close_();
  round_.close();
  outside_.assign(outside_.size(), false);
  if (!contributing_) drop_gradients();
  if (after_close_) after_close_();
}

void HookAdapter::drop_gradients() {
  for (size_t i = 0; i < round_.size(); ++i) round_.parameter(i).mutable_grad() = at::Tensor();
}

void HookAdapter::reduce_accumulated(bool told_one_by_one) {
  check<UsageError>(!round_.is_open(),
                    "gradients that have accumulated are reduced between backwards, and one was "
                    "interrupted or is under way: call reset() on every rank after an exception");
  round_.open();
  contributing_ = !contributes_ || contributes_();
  if (!contributing_) drop_gradients();
  if (told_one_by_one && contributing_)
    for (size_t i = 0; i < outside_.size(); ++i)
      if (outside_[i] && round_.parameter(i).grad().defined()) round_.ready(i);
  end();
}

void HookAdapter::note_outside(size_t i) {
  outside_[i] = true;
  round_.accumulated_outside(i);
}

std::function<void()> HookAdapter::beginning() {
  return [this, alive = std::weak_ptr<int>(alive_)] {
    if (!alive.expired()) begin();
  };
}

void HookAdapter::accumulated(size_t i) {
  if (paused_) return note_outside(i);
  if (rounds_ == Rounds::automatic) {
    begin();
  } else if (!round_.is_open()) {
    return;  // not a backward of ours
  }
  if (contributing_) round_.ready(i);
}

// Runs before p.grad() has the gradient. The engine has already looked for hooks by then: one that
// is added now may or may not run in this pass, so it is added after the backward.
void HookAdapter::on_gradient_arriving(size_t i) {
  if (attached_[i]->hook.is_on(round_.parameter(i))) return;
  if (paused_) return note_outside(i);
  if (rounds_ == Rounds::automatic) {
    begin();
  } else if (!round_.is_open()) {
    return;
  } else if (unseen_.empty()) {
    compat::on_backward_end([this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) deliver_unseen();
    });
  }
  unseen_.push_back(i);
}

void HookAdapter::deliver_unseen() {
  const std::vector<size_t> unseen = std::move(unseen_);
  unseen_.clear();
  for (size_t i : unseen)
    if (!attached_[i]->hook.is_on(round_.parameter(i))) attached_[i] = attach(i);
  for (size_t i : unseen)
    if (contributing_ && round_.is_open()) round_.ready(i);
}

void HookAdapter::rehook_replaced_accumulators() {
  for (size_t i = 0; i < attached_.size(); ++i) {
    const at::Tensor& p = round_.parameter(i);
    if (p.requires_grad() && !attached_[i]->hook.is_on(p)) attached_[i] = attach(i);
  }
}

void HookAdapter::reset() {
  round_.reset();
  outside_.assign(outside_.size(), false);
  unseen_.clear();
  backward_.reset();
}

}  // namespace trireme
