// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/costs.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme::pipeline {

/// One computation of a rank.
struct Span {
  Action action;
  double start = 0, end = 0;
};

struct RankTiming {
  std::vector<Span> spans;    // in the order of its list
  double start = 0, end = 0;  // of its first and its last action
  double busy = 0;
  int activations = 0;       // at most this many forwards wait for their input gradient,
  int weight_gradients = 0;  // this many input gradients for W,
  int kept = 0;              // and this many micro-batches of its stages for either
  double span() const { return end - start; }
};

struct StageTiming {
  int rank = 0;
  double busy = 0;
  double waited = 0;  // its rank's idle time right before this stage's actions: over the stages of
                      // a rank they add up to what it is idle until its last action
  int activations = 0, weight_gradients = 0, kept = 0;  // as of a rank, of this stage alone
};

struct Timing {
  std::vector<RankTiming> ranks;
  std::vector<StageTiming> stages;
  double makespan = 0;  // from time 0, when the first rank begins, until the last rank is done

  /// The idle part of the step if all ranks begin and end it together: 1 − busiest rank ÷ makespan.
  double bubble() const;
  /// The idle part if a rank begins its next step when it is done with this one (no exchange of
  /// norms between ranks in between): the Zero Bubble paper's rate, by the longest span of a rank.
  double span_bubble() const;
};

/// Carries a table out in time. A rank does one action after the other (an overlapped pair in
/// turn); sends and receives take it no time, and an action that needs a message starts when it has
/// arrived. B takes as long as I and W together. Where there are no messages, each is sent as soon
/// as it can be. Exact: no randomness, no contention. Throws UsageError for costs that are
/// negative, not finite, or as many as neither 1 nor the stages, and where the table cannot be
/// carried out.
TRIREME_API Timing simulate(const Schedule& schedule, const Costs& costs);

}  // namespace trireme::pipeline
