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

/// Why a group is finished: the same on every rank.
struct Failure {
  enum class Kind : uint8_t { lost, mismatch, timeout, resource };
  Kind kind = Kind::lost;
  int peer = -1;  // the rank of the world that it is about
  std::string text;
};
/// Throws the error that a Failure is, on this rank.
[[noreturn]] void raise(const Failure& failure, int rank);
/// That error, to be kept.
std::exception_ptr exception_of(const Failure& failure, int rank);

/// Backend::abort(): what a rank tells the others, and what its own next calls throw.
struct GivenUp {
  Failure told;
  std::exception_ptr own;
};
/// rank: of the group; peer: the same rank as the Failure counts it; calls: made so far.
GivenUp give_up(const std::string& why, AbortKind kind, int rank, int peer, uint64_t calls);

std::string to_text(const Failure& failure);
Failure failure_from(const std::string& text);

/// How the ranks of a world that meet in a store tell each other what goes wrong. A thread with a
/// connection of its own looks for news a few times a second; the connection's last will says when
/// this process dies. The first cause of a group's end is kept and is what all its ranks get. Keys:
///   news/lost/<rank>      the text of a rank's will
///   news/failed/<group>   the first Failure of a group
///   news/left/<rank>      this rank of the world has left in order
///   left/<group>/<rank>   and this one, of the world, that group
///   words/<group>/<rank>  what a rank that waits for long is doing
/// Threads: any. A store that is gone is a PeerLost of every group, unless a rank has left before:
/// then the store may have closed in order. One that does not answer, however long, is no loss; it
/// holds up nobody for more than two seconds in all, also where this object is destroyed.
class TRIREME_API FailureMonitor {
 public:
  static constexpr Duration kPeriod = std::chrono::milliseconds(200);
  /// Runs on the watch's thread; must not call the watch.
  using OnFailure = std::function<void(const Failure&)>;

  FailureMonitor(std::unique_ptr<Store> connection, int rank, int size);
  ~FailureMonitor();
  FailureMonitor(const FailureMonitor&) = delete;

  /// world_ranks: of the group's ranks.
  void join(const std::string& group, std::vector<int> world_ranks, OnFailure on_failure);
  /// No more calls of on_failure. in_order: the others learn that this rank left.
  void leave(const std::string& group, bool in_order);

  /// Tells the group; returns the first cause, which may be another one. Within about two seconds.
  Failure fail(const std::string& group, const Failure& failure);
  /// Why the connection to a rank of the world broke: a cause that somebody has told, or that a
  /// will tells, within `patience`; nullopt at once where that rank (-1: none) has left the group.
  std::optional<Failure> cause(const std::string& group, int world_rank, Duration patience);
  bool has_left(const std::string& group, int world_rank);

  /// What this rank waits in; for others' words().
  void say(const std::string& group, std::string words);
  /// What the ranks said last, by rank of the world; those who said nothing are missing.
  std::map<int, std::string> words(const std::string& group, const std::vector<int>& world_ranks);
  /// "": the store answers; else that it has not for two seconds, and what that means. The process
  /// that serves it is stopped, perhaps: nothing is known of anybody.
  std::string silence() const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;  // the thread's too
  std::thread thread_;
};

}  // namespace trireme::detail
