// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/backend.h"
#include "trireme/store/store.h"

namespace trireme::detail {

/// Why a group failed: the same on every rank.
struct Failure {
  enum class Kind : uint8_t { lost, mismatch, timeout, resource };
  Kind kind = Kind::lost;
  int peer = -1;  // the world rank that it concerns
  std::string text;
};
/// Throws the error that a Failure means on this rank.
[[noreturn]] void raise(const Failure& failure, int rank);
/// Returns that error as an exception_ptr.
std::exception_ptr exception_of(const Failure& failure, int rank);

/// The result of Backend::abort(): what a rank reports to the others, and what its own next calls
/// throw.
struct GivenUp {
  Failure told;
  std::exception_ptr own;
};
/// `rank` is in the group; `peer` is the same rank in the numbering of the Failure; `calls` is the
/// number of calls so far.
GivenUp give_up(const std::string& why, AbortKind kind, int rank, int peer, uint64_t calls);

std::string to_text(const Failure& failure);
Failure failure_from(const std::string& text);

/// Exchanges failures between the ranks of a world that meet in a store. A thread with its own
/// connection polls a few times a second; the connection's will reports the death of this process.
/// The first cause of a group's failure is stored, and all its ranks get that one. Keys:
///   news/lost/<rank>      the text of a rank's will
///   news/failed/<group>   the first Failure of a group
///   news/left/<rank>      this world rank has left in order
///   left/<group>/<rank>   this world rank has left that group
///   words/<group>/<rank>  what a rank that has waited for long is doing
/// Thread-safe. Loss of the store is a PeerLost of every group, unless a rank has left before: the
/// store may then have closed in order. A store that does not answer is never a loss, and delays
/// callers, including the destructor, by at most two seconds in all.
class TRIREME_API FailureMonitor {
 public:
  static constexpr Duration kPeriod = std::chrono::milliseconds(200);
  /// Runs on the monitor's thread and must not call the monitor.
  using OnFailure = std::function<void(const Failure&)>;

  FailureMonitor(std::unique_ptr<Store> connection, int rank, int size);
  ~FailureMonitor();
  FailureMonitor(const FailureMonitor&) = delete;

  /// world_ranks: the world ranks of the group.
  void join(const std::string& group, std::vector<int> world_ranks, OnFailure on_failure);
  /// Stops calls of on_failure. in_order: the others are notified that this rank left.
  void leave(const std::string& group, bool in_order);

  /// Notifies the group and returns the first cause, which may be a different one. Takes at most
  /// about two seconds.
  Failure fail(const std::string& group, const Failure& failure);
  /// Returns why the connection to a world rank broke: a cause that a rank or a will reports within
  /// `patience`; nullopt at once if that rank (-1: none) has left the group.
  std::optional<Failure> cause(const std::string& group, int world_rank, Duration patience);
  bool has_left(const std::string& group, int world_rank);

  /// Publishes what this rank waits for; other ranks read it with words().
  void say(const std::string& group, std::string words);
  /// Returns what the ranks last published, by world rank; ranks that published nothing are
  /// missing.
  std::map<int, std::string> words(const std::string& group, const std::vector<int>& world_ranks);
  /// Returns "" if the store answers; else a sentence that it has not for two seconds. The process
  /// that serves it may be stopped, so the state of all ranks is unknown.
  std::string silence() const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;  // shared with the thread
  std::thread thread_;
};

}  // namespace trireme::detail
