// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "tests/launch/succession_launchers.h"

namespace trireme::launch {

/// A job from its beginning to its rest, in which whatever happens at most one part goes on, only
/// that one publishes, and a connected majority proceeds; else `fault` says what was wrong.
class SuccessionHistory : public SuccessionLaunchers {
 public:
  explicit SuccessionHistory(uint64_t seed) : SuccessionLaunchers(seed) {
    const int count = pick(1, 12);
    place_ = pick(0, 1) == 1;
    for (int i = 0; i < count; ++i) add();
    begin_first(count);
    const int moments = pick(3, 25);
    for (int i = 0; i < moments && fault.empty(); ++i) {
      happen();
      run(pick(0, 3) == 0 ? pick(0, 40'000) : pick(0, 6'000));
    }
    settle();
  }

 private:
  void run(int64_t ms) {
    for (const int64_t end = now_ + ms; now_ < end && fault.empty(); now_ += 100) {
      for (size_t k = 0; k < later_.size();) {
        if (later_[k].at > now_) {
          ++k;
          continue;
        }
        const auto what = std::move(later_[k].what);
        later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(k));
        what();
      }
      for (int i = 0; i < static_cast<int>(agents_.size()); ++i) {
        if (!works(i) || at(i).frozen_until > now_) continue;
        if (at(i).workers_end >= 0 && now_ >= at(i).workers_end)
          at(i).acts = at(i).workers_end = -1;
        if (at(i).role == Role::keeper) keep(i);
        if (at(i).role == Role::orphan) succeed(i);
        if (at(i).role == Role::keeper || at(i).role == Role::member) take_part(i);
        if (at(i).acts >= 0 && pick(0, 20) == 0) publish(i);
      }
    }
  }

  void publish(int i) {
    const int64_t n = at(i).acts;
    if (!place_ || (!claims_.empty() && claims_.rbegin()->first >= n)) return;
    if (history_.back().number > n && history_loss_.back()) fault = "an older generation publishes";
  }

  /// The last part: time to rest, and then one more fault.
  void settle() {
    for (Agent& a : agents_) a.group = 0, a.frozen_until = 0;
    run(150'000);
    if (!fault.empty()) return;
    const auto newest = history_.back();
    if (std::none_of(agents_.begin(), agents_.end(),
                     [&](const Agent& a) { return a.alive && a.acts == newest.number; })) {
      ++ended;
      return;
    }
    const int parts = pick(1, 2);
    for (Agent& a : agents_) {
      a.group = pick(0, parts - 1);
      if (pick(0, 5) == 0) a.alive = false, a.acts = -1;
    }
    std::map<int, int> together;
    for (const Member& m : newest.members)
      if (works(index_[m.token]) && at(index_[m.token]).standing.generation == newest.number)
        ++together[at(index_[m.token]).group];
    run(250'000);
    if (!fault.empty()) return;
    for (const auto& [group, count] : together) {
      if (2 * count <= static_cast<int>(newest.members.size())) continue;
      bool acts = false;
      for (const Agent& a : agents_) acts |= a.alive && a.group == group && a.acts >= newest.number;
      if (acts)
        ++proceeded;
      else
        fault = "a connected majority does not go on";
    }
  }
};

}  // namespace trireme::launch
