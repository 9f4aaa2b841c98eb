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

/// For check=hash: what one rank waits in, over a group and the groups made of it. Nothing is said
/// or asked before a call has made the rank wait for a second; then it says in what, on a board
/// outside the path of the data, and looks a few times a second at what the others say. Ranks that
/// wait for each other, called different things or have left are a mismatch. A rank that is merely
/// late is told of once, after three seconds, in a line of the log, and left alone: it may be, for
/// minutes.
///
/// A rank whose groups are used by several threads at a time ends nothing: another of its threads
/// may still do what is awaited. Threads: any.
class StallWatch {
 public:
  explicit StallWatch(std::unique_ptr<WaitBoard> board);

  /// A group of this rank, which tells of itself when it is asked.
  struct Member {
    std::string name;
    std::function<GroupCalls()> calls;
    std::function<std::thread::id()> caller;  // of its last call; none: there was none
    /// A mismatch finishes all groups of this rank with the same words, so that ranks that only
    /// wait for this one get them too.
    std::function<void(const std::string& why)> end;
  };
  void join(const void* group, Member member);
  /// in_order: the others learn that this rank left; a rank that compares what all called at the
  /// end finds what nobody had to wait for, and says so in the log.
  void leave(const void* group, bool in_order, const RecentCalls& recent);
  void end_all(const std::string& why);

  struct Seen {
    std::string mismatch;  // "": none
    /// Of the group, by rank of the root group.
    std::vector<std::optional<RecentCalls>> recent;
  };
  /// Called now and then by the thread that waits in `what`, in `group`. left: until its deadline.
  Seen look(const Waiting& what, const std::string& group, const RecentCalls& recent,
            Duration waited, Duration left);
  /// Of a call that failed, perhaps because others called something else: says what this rank has
  /// called in `group`, and gives what others have said of that.
  std::vector<std::optional<RecentCalls>> compare_at_failure(const std::string& group,
                                                             const RecentCalls& recent);
  /// The wait is over.
  void goes_on() {
    if (said_waiting_) say_free();
  }
  /// Now and then, by ranks that never wait: takes in what others say.
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
  std::unique_ptr<WaitBoard> board_;  // null: whoever keeps it is gone
  const Duration look_every_;
  std::map<const void*, Member> members_;
  WaitRecord own_;
  std::map<std::string, RecentCalls> ended_;  // groups that this rank left in order
  std::string said_;
  std::atomic<bool> said_waiting_{false};
  bool reported_ = false;  // this wait
  Clock::time_point next_look_{};
  std::unique_ptr<LeaveAtExit> at_exit_;  // where the board asks for it; the first to go
};

}  // namespace trireme::detail
