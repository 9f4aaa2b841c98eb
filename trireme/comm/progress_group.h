// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

namespace trireme::detail {

/// A rank's backends that get on only while the rank turns to them (a hybrid group's steps, planned
/// calls), of a group and the groups made of it. A peer may need this rank's part of one of their
/// calls before it comes to what this rank waits for: so whoever waits moves the others.
///
/// Used by the thread that uses these groups.
class ProgressGroup {
 public:
  /// move: goes as far as it can without waiting; whether calls are under way. What it throws its
  /// backend throws again when it is used next.
  void enter(const void* who, std::function<bool()> move) {
    members_.push_back({who, std::move(move)});
  }
  void leave(const void* who) {
    std::erase_if(members_, [&](const Member& m) { return m.who == who; });
  }

  /// Moves all but `self`, who waits; whether any of them has calls under way.
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
