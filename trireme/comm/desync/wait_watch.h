// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/desync/wait_board.h"
#include "trireme/comm/desync/wait_graph.h"
#include "trireme/comm/start/leave_at_exit.h"

namespace trireme::detail {

/// For check=each: what one rank does in a group and the groups made of it. A rank that has waited
/// for a second publishes what it waits for, and then checks a few times a second whether the ranks
/// that it needs wait for it, or have left. Calls in another order, and calls of another group,
/// therefore fail after about 1.2 s. A rank whose groups are used by several threads publishes
/// nothing, because another of its threads may still make the awaited call. Ranks that are merely
/// late are logged once per wait, after three seconds.
class WaitWatch {
 public:
  explicit WaitWatch(std::unique_ptr<WaitBoard> board);

  /// Adds a group. A mismatch calls `end` of every group of this rank with the same text, so that
  /// ranks that wait only for this one get it too.
  void join(const void* group, std::function<void(const std::string& why)> end);
  void leave(const void* group);
  void end_all(const std::string& why);

  void called(const std::string& group, uint64_t number);
  /// Returns the number of this message among those to, or from, this peer with this tag.
  uint64_t posted(const std::string& group, WaitKind kind, int peer, int tag);
  void posted_any_source(const std::string& group, int tag);
  void left(const std::string& group);

  enum class Outcome { done, mismatch, late };
  struct Ended {
    Outcome outcome = Outcome::done;
    std::string text;  // for a mismatch; for a late call, the missing ranks
  };
  /// Waits until `done` returns true, a wait is found to be endless, or `timeout` passes.
  /// Exceptions of `done` pass through.
  Ended await(const Waiting& what, const std::function<bool()>& done, Duration timeout);
  /// Returns a sentence about a rank that `what` waits for and that has left.
  std::optional<std::string> who_left(const Waiting& what);

 private:
  GroupCalls& of(const std::string& group);
  bool speaks_for_all() const;
  void say(const Waiting& what);
  void leave_at_exit();
  WaitRecords heard();
  std::string text_of_absent(const WaitRecords& records, Duration waited) const;
  std::optional<Ended> look(const Waiting& what, bool said, bool late, Duration waited,
                            Duration left);

  std::mutex mutex_;
  const std::unique_ptr<WaitBoard> board_;
  const Duration look_every_;
  WaitRecord own_;
  std::map<std::string, std::thread::id> callers_;  // the last thread to call in a group
  std::map<const void*, std::function<void(const std::string&)>> ends_;
  std::thread::id waiting_{};
  bool reported_ = false;  // in the log, for this wait
  bool at_once_ = false;   // two threads of this rank were seen in calls at the same time
  bool board_gone_ = false;
  std::unique_ptr<LeaveAtExit> at_exit_;  // if the board asks for it; destroyed first
};

}  // namespace trireme::detail
