// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// What is to be done about an actor that failed: times and counts in, decisions out.
namespace trireme::rpc {

/// What becomes of an actor whose handler throws. Its caller gets the error in any case.
enum class OnError {
  keep,     // it takes its next message
  restart,  // it is destroyed and constructed again, where it is
  escalate  // it ends, and who spawned it is told
};

/// What becomes of an actor whose worker is gone.
enum class OnDeath {
  same_worker,  // it is constructed again once a worker of that name is back
  elsewhere,    // or on another worker of the group that is there: on the one with fewest actors
  escalate
};

struct Supervision {
  OnError on_error = OnError::keep;
  OnDeath on_death = OnDeath::elsewhere;
  /// More failures than this within that time are no accident: the actor ends, and the story of its
  /// failures is what who spawned it is told. Errors are counted where the actor is, deaths by who
  /// spawned it.
  int most_restarts = 3;
  Duration within = std::chrono::seconds(60);
  /// How long it waits for a worker that it can be restarted on.
  Duration patience = std::chrono::seconds(60);
};

namespace detail {

/// The failures of one actor.
class TRIREME_API FailureHistory {
 public:
  /// It failed at `now`, which never goes back. Whether it may be restarted.
  bool may_restart(Duration now, const Supervision& policy, const std::string& what);
  int restarts() const { return restarts_; }
  /// "it was restarted 3 times in 60 s: after 1.2 s, …; after 1.3 s, …": the last ones in full.
  std::string story() const;

  static constexpr size_t kMostTold = 8;

 private:
  struct Failure {
    Duration at;
    std::string what;
  };
  std::deque<Duration> recent_;  // restarts within the policy's time
  std::deque<Failure> told_;
  int restarts_ = 0, failures_ = 0;
};

struct Candidate {
  bool there = false;
  int actors = 0;  // of the group, that are there or on their way
};
/// On which of the group's workers an actor is to be restarted that was on `before`; none: on none
/// of those that are there now.
TRIREME_API std::optional<size_t> place_for(const std::vector<Candidate>& workers, size_t before,
                                            OnDeath on_death);

}  // namespace detail
}  // namespace trireme::rpc
