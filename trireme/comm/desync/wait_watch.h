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

/// What one rank does in a group and the groups made of it, for check=each. A rank that has waited
/// for a second says in what, and then looks a few times a second whether the ranks that it needs
/// wait for it, or have left. So calls in another order, and calls of another group, end in about
/// 1.2 s. A rank whose groups are used by several threads says nothing: another of its threads may
/// still do what is awaited. Ranks that are merely late are told of once a wait, in the log, after
/// three seconds.
class WaitWatch {
 public:
  explicit WaitWatch(std::unique_ptr<WaitBoard> board);

  /// A mismatch finishes all groups of this rank with the same words, so that ranks that only wait
  /// for this one get them too: `end` of each.
  void join(const void* group, std::function<void(const std::string& why)> end);
  void leave(const void* group);
  void end_all(const std::string& why);

  void called(const std::string& group, uint64_t number);
  /// The number of this message among those to, or from, this peer with this tag.
  uint64_t posted(const std::string& group, WaitKind kind, int peer, int tag);
  void posted_any_source(const std::string& group, int tag);
  void left(const std::string& group);

  enum class Outcome { done, mismatch, late };
  struct Ended {
    Outcome outcome = Outcome::done;
    std::string text;  // of a mismatch; of a late call, who did not come
  };
  /// Returns when `done` says so, or who waits will wait for ever, or after `timeout`. What `done`
  /// throws passes through.
  Ended await(const Waiting& what, const std::function<bool()>& done, Duration timeout);
  /// Whom `what` waits for in vain, because that rank has left, as a sentence.
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
  std::map<std::string, std::thread::id> callers_;  // who called in a group last
  std::map<const void*, std::function<void(const std::string&)>> ends_;
  std::thread::id waiting_{};
  bool reported_ = false;  // in the log, of this wait
  bool at_once_ = false;   // two threads of this rank were seen in calls at the same time
  bool board_gone_ = false;
  std::unique_ptr<LeaveAtExit> at_exit_;  // where the board asks for it; the first to go
};

}  // namespace trireme::detail
