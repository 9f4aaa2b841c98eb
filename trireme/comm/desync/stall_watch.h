// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/desync/wait_board.h"
#include "trireme/comm/desync/wait_graph.h"
#include "trireme/comm/recent_calls.h"
#include "trireme/comm/start/leave_at_exit.h"

namespace trireme::detail {

/// For check=hash: what one rank waits for, over a group and the groups made of it. Nothing is
/// exchanged until a call has waited for a second. Then the rank publishes what it waits for on a
/// board, separate from the data path, and reads those of the others a few times a second. Ranks
/// that wait for each other, called different things or have left are a Mismatch. A rank that is
/// merely late is reported in the log once, after three seconds; it may be late for minutes.
///
/// A rank whose groups are used by several threads at the same time ends nothing, because another
/// of its threads may still make the awaited call. Thread-safe.
class StallWatch {
 public:
  explicit StallWatch(std::unique_ptr<WaitBoard> board);

  /// A group of this rank, and how to query it.
  struct Member {
    std::string name;
    std::function<GroupCalls()> calls;
    std::function<std::thread::id()> caller;  // of its last call; none if there was none
    /// Ends the group. A mismatch ends all groups of this rank with the same text, so that ranks
    /// that wait only for this one get it too.
    std::function<void(const std::string& why)> end;
  };
  void join(const void* group, Member member);
  /// in_order: the others are notified that this rank left. A rank that compares all calls at the
  /// end finds differences that no rank had to wait for, and logs them.
  void leave(const void* group, bool in_order, const RecentCalls& recent);
  void end_all(const std::string& why);

  struct Seen {
    std::string mismatch;  // "": none
    /// The recent calls in the group, by rank of the root group.
    std::vector<std::optional<RecentCalls>> recent;
  };
  /// Called from time to time by the thread that waits for `what` in `group`. left: time to its
  /// deadline.
  Seen look(const Waiting& what, const std::string& group, const RecentCalls& recent,
            Duration waited, Duration left);
  /// After a call failed, perhaps because ranks called different things: publishes what this rank
  /// has called in `group`, and returns what the others have published about it.
  std::vector<std::optional<RecentCalls>> compare_at_failure(const std::string& group,
                                                             const RecentCalls& recent);
  /// Call it when the wait is over.
  void goes_on() {
    if (said_waiting_) say_free();
  }
  /// Reads what others publish; call it from time to time on ranks that never wait.
  void sweep();

 private:
  bool speaks_for_all() const;
  void gather_own(const Waiting& what);
  void keep_own(const std::string& group, const RecentCalls& recent);
  static std::vector<std::optional<RecentCalls>> recent_of(const WaitRecords& records,
                                                           const std::string& group);
  void say();
  void say_free();
  WaitRecords heard();
  void report(const std::string& text);
  void compare_at_the_end();
  void leave_at_exit();

  std::mutex mutex_;
  std::unique_ptr<WaitBoard> board_;  // null: its server is gone
  const Duration look_every_;
  std::map<const void*, Member> members_;
  WaitRecord own_;
  std::map<std::string, RecentCalls> ended_;  // groups that this rank left in order
  std::string said_;
  std::atomic<bool> said_waiting_{false};
  bool reported_ = false;  // during this wait
  Clock::time_point next_look_{};
  std::unique_ptr<LeaveAtExit> at_exit_;  // if the board asks for it; destroyed first
};

}  // namespace trireme::detail
