// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

namespace trireme::detail {

/// The backends of a rank that make progress only when the rank calls them (a hybrid group's steps,
/// planned calls), in a group and the groups made of it. A peer may need this rank's part of one of
/// their calls before it makes the call that this rank waits for, so a waiting backend advances the
/// others.
///
/// Use from the thread that uses these groups.
class ProgressGroup {
 public:
  /// `move` advances as far as possible without waiting and returns whether calls are in flight. If
  /// it throws, its backend throws that again on next use.
  void enter(const void* who, std::function<bool()> move) {
    members_.push_back({who, std::move(move)});
  }
  void leave(const void* who) {
    std::erase_if(members_, [&](const Member& m) { return m.who == who; });
  }

  /// Advances all except `self`, which is waiting; returns whether any of them has calls in flight.
  bool progress_others(const void* self = nullptr) {
    if (moving_) return true;
    moving_ = true;
    bool under_way = false;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].who == self) continue;
      try {
        under_way = members_[i].move() || under_way;
      } catch (const std::exception&) {
      }
    }
    moving_ = false;
    return under_way;
  }

 private:
  struct Member {
    const void* who;
    std::function<bool()> move;
  };
  std::vector<Member> members_;
  bool moving_ = false;
};

}  // namespace trireme::detail
