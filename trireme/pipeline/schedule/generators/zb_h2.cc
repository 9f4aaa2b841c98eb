// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/generators/lists.h"

// ZB-H2 (Qi et al. 2023, figure 3): rank r begins with 2(p−r)−1 forwards, which take until its
// first gradient arrives, and computes one of each in turn. While rank 0 has no forwards left, rank
// r puts off 2r weight gradients and computes them last. No rank is idle between its first action
// and its last where F = I = W; rank r begins and ends r forwards after rank 0.
namespace trireme::pipeline {

Schedule zb_h2(const ScheduleSize& size) {
  check_one_stage_a_rank("zb_h2", size);
  const int p = size.ranks, m = size.micro_batches;
  check<UsageError>(m >= 2 * p - 1,
                    "zb_h2 begins with {} forwards on rank 0 and has {} micro-batches: choose at "
                    "least {} micro-batches, or zb_h1",
                    2 * p - 1, m, 2 * p - 1);
  Schedule schedule{"zb_h2", m, looped_placement(p, 1), {}};
  for (int rank = 0; rank < p; ++rank) {
    const int ahead = 2 * (p - rank) - 1, waiting = 2 * rank;
    const int even = m - (2 * p - 1);  // micro-batches whose weight gradient follows at once
    ActionList list;
    for (int k = 0; k < ahead; ++k) list.f(rank, k);
    for (int k = 0; k < m; ++k) {
      list.i(rank, k);
      if (k < even) list.w(rank, k);
      if (k >= even + waiting) list.w(rank, k - waiting);
      if (k + ahead < m) list.f(rank, k + ahead);
    }
    for (int k = m - waiting; k < m; ++k) list.w(rank, k);
    schedule.actions.push_back(std::move(list.actions));
  }
  return schedule;
}

}  // namespace trireme::pipeline
