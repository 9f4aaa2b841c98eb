// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/base/export.h"

namespace trireme::rpc::plan {

/// How a server sees a worker. Others wait for those that are expected or here; `away` was here
/// before the server itself was lost, and is expected to come again.
enum class Presence : uint8_t { expected, here, away, left, lost };

/// Who may step when, as one server of parameters sees it. Pure: whoever holds it has the lock.
///
/// Each worker has a clock, the step that its next gradients are of. Synchronous: there is one step
/// that is open; it closes when everybody who is waited for has given gradients, and a worker may
/// begin a step when the one before is closed. With a staleness of s, gradients are taken as they
/// come, and a worker may begin a step when nobody who is waited for is more than s steps behind.
class TRIREME_API Clocks {
 public:
  /// `staleness` unset: synchronous. UsageError: no workers, or a negative staleness.
  Clocks(int workers, std::optional<int64_t> staleness);

  int workers() const { return static_cast<int>(of_.size()); }
  bool synchronous() const { return !staleness_; }
  bool knows(int rank) const { return rank >= 0 && rank < workers(); }
  /// Synchronous: the step that is open. Else how many gradients were taken.
  int64_t step() const { return step_; }
  int64_t clock(int rank) const { return at(rank).clock; }
  Presence presence(int rank) const { return at(rank).presence; }
  std::vector<int> lost() const;
  bool any(Presence presence) const;
  /// Nobody is here or expected, and somebody has been here; some may be away.
  bool nobody_is_here() const;

  /// The worker is here. Its clock is set where steps are taken as they come.
  void come(int rank, int64_t clock);
  void go(int rank, Presence how) { at(rank).presence = how; }

  /// All gradients of this worker's step are here; where steps are taken as they come, they have
  /// been taken.
  void gave(int rank);
  /// Synchronous: those whose gradients make the open step, ascending, if it can close; else none.
  std::vector<int> complete() const;
  /// Closes the open step.
  void close() { ++step_; }

  bool may_begin(int rank, int64_t step) const;
  /// Those for whom a worker waits that may not begin `step`, ascending.
  std::vector<int> waited_for(int64_t step) const;

  /// Everything begins again at this step, with everybody but those that are lost.
  void go_back(int64_t step, const std::vector<int>& lost);
  /// What a checkpoint says of a server whose gradients are taken as they come. Workers are away.
  void resume(int64_t step, const std::vector<int64_t>& clocks);
  std::vector<int64_t> clocks() const;

 private:
  struct Worker {
    int64_t clock = 0;
    Presence presence = Presence::expected;
    bool waited_for() const { return presence == Presence::expected || presence == Presence::here; }
  };
  const Worker& at(int rank) const { return of_.at(static_cast<size_t>(rank)); }
  Worker& at(int rank) { return of_.at(static_cast<size_t>(rank)); }

  std::vector<Worker> of_;
  const std::optional<int64_t> staleness_;
  int64_t step_ = 0;
};

}  // namespace trireme::rpc::plan
