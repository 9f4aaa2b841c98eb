// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hook_adapter.h"

#include "trireme/base/check.h"

namespace trireme {

HookAdapter::HookAdapter(GradientRound& round, Rounds rounds) : round_(round), rounds_(rounds) {
  for (size_t i = 0; i < round_.size(); ++i) {
    hooks_.emplace_back(round_.parameter(i), [this, i] { accumulated(i); });
    offers_.emplace_back(round_.parameter(i), [&round, i] { return round.offer(i); });
  }
}

HookAdapter::~HookAdapter() = default;

void HookAdapter::begin() {
  if (paused_) return;
  if (!round_.is_open()) {
    round_.open();
    auto token = std::make_shared<int>(0);
    backward_ = token;
    compat::on_backward_end([this, token, alive = std::weak_ptr<int>(alive_)] {
      if (alive.expired() || !round_.is_open()) return;
      round_.close();
      if (after_close_) after_close_();
    });
  }
  if (backward_.expired()) [[unlikely]]
    fail<UsageError>(
        "the last backward was broken off by an exception, and ranks may differ since: call "
        "reset() on DistributedDataParallel on every rank before the next one");
}

std::function<void()> HookAdapter::beginning() {
  return [this, alive = std::weak_ptr<int>(alive_)] {
    if (!alive.expired()) begin();
  };
}

void HookAdapter::accumulated(size_t i) {
  if (paused_) return;
  if (rounds_ == Rounds::automatic) {
    begin();
  } else if (!round_.is_open()) {
    return;  // a backward of somebody else's
  }
  round_.ready(i);
}

void HookAdapter::reset() {
  round_.reset();
  backward_.reset();
}

}  // namespace trireme
