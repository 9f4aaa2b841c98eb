// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/comm/hybrid/hybrid_backend.h"

// Runs steps, and waits for them.
namespace trireme::detail {

namespace {
constexpr Duration kStall =
    std::chrono::seconds(1);  // after which a rank reports what it waits for
constexpr Duration kLookEvery = std::chrono::milliseconds(200);
}  // namespace

Token HybridBackend::launch(Pending p) {
  usable();
  p.number = ++calls_;
  const uint64_t number = p.number;
  pending_.push_back(std::move(p));
  progress();
  return {number, -1, kCallKind};
}

bool HybridBackend::is_complete(Token token) const {
  if ((token.kind & 0xf) == kPairKind)
    return std::none_of(pairs_.begin(), pairs_.end(),
                        [&](const Pair& p) { return p.token.number == token.number; });
  return pending_.empty() || token.number < pending_.front().number;
}

/// Polls an inner group.
bool HybridBackend::completed_in(Lane lane, Token token) {
  at_ = lane;
  return token.kind == 0 || groups_[lane]->completed(token);
}

void HybridBackend::step(Pending& p) {
  for (Step& s : p.steps)
    if (s.posted && !s.complete && completed_in(s.lane, s.token)) {
      s.complete = true;
      ++moves_;
    }
}

void HybridBackend::progress() {
  usable();
  if (ending_.is_known()) finish(ending_.cause());
  try {
    for (Pending& p : pending_) step(p);
    // Each lane posts in the planned order: its first step that is not ready delays those after it.
    bool open[kLanes] = {true, true, true};
    for (Pending& p : pending_) {
      for (Step& s : p.steps) {
        if (s.posted || !open[s.lane]) continue;
        const bool ready = std::all_of(s.after.begin(), s.after.end(),
                                       [&](size_t i) { return p.steps[i].complete; });
        if (!ready) {
          open[s.lane] = false;
          continue;
        }
        at_ = s.lane;
        s.token = s.post();
        s.posted = true;
        s.complete = completed_in(s.lane, s.token);
        ++moves_;
      }
    }
    while (!pending_.empty() &&
           std::all_of(pending_.front().steps.begin(), pending_.front().steps.end(),
                       [](const Step& s) { return s.complete; })) {
      Pending p = std::move(pending_.front());
      pending_.pop_front();
      if (p.finish) p.finish();
      if (p.done) p.done();
    }
    for (size_t i = 0; i < pairs_.size();) {
      if (!completed_in(pairs_[i].lane, pairs_[i].below)) {
        ++i;
        continue;
      }
      Pair p = std::move(pairs_[i]);
      pairs_.erase(pairs_.begin() + static_cast<long>(i));
      if (p.done) p.done();
    }
    for (Lane lane : {inside, across, flat}) {
      at_ = lane;
      if (groups_[lane]) groups_[lane]->progress();
    }
  } catch (const std::exception&) {
    if (failure_) throw;
    finish_because();
  }
}

void HybridBackend::join(std::shared_ptr<ProgressGroup> progress_group) {
  progress_group->enter(this, [this] {
    if (failure_ || (pending_.empty() && pairs_.empty())) return false;
    progress();
    return true;
  });
  Backend::join(std::move(progress_group));
}

void HybridBackend::wait(Token token, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const Deadline stall = Deadline::after(std::min<Duration>(kStall, timeout / 3));
  auto next_look = Clock::now() + kStall;
  bool said = false;
  uint64_t moves = moves_;
  auto moved = Clock::now();
  for (int turn = 0;; ++turn) {
    progress();
    if (is_complete(token)) return;
    if (progress_group()) progress_group()->progress_others(this);
    if (turn < 1000) {
      ::sched_yield();
      continue;
    }
    if (!said && stall.expired() && !pending_.empty()) {
      said = true;
      ending_.say(pending_.front().number, pending_.front().what.text());
    }
    if (deadline.expired()) finish(ending_.tell(timed_out(token, timeout)));
    // A long wait yields the CPU to others, at a delay of one percent.
    const auto now = Clock::now();
    if (look_ && now >= next_look) {
      look_();
      next_look = Clock::now() + kLookEvery;
    }
    if (std::exchange(moves, moves_) != moves_) moved = now;
    std::this_thread::sleep_for(std::clamp<Duration>(
        (now - moved) / 100, std::chrono::microseconds(50), std::chrono::milliseconds(1)));
  }
}

void HybridBackend::when_complete(Token token, std::function<void()> done) {
  for (auto& p : pairs_)
    if (p.token.number == token.number && (token.kind & 0xf) == kPairKind) {
      p.done = std::move(done);
      return;
    }
  for (auto& p : pending_)
    if (p.number == token.number && (token.kind & 0xf) == kCallKind) {
      p.done = std::move(done);
      return;
    }
  done();
}

}  // namespace trireme::detail
