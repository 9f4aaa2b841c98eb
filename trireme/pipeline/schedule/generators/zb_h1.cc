// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/pipeline/schedule/generators/lists.h"

// ZB-H1 (Qi et al. 2023): 1F1B whose weight gradients wait. Rank r has r of them waiting, so that
// every rank keeps p micro-batches, and they fill what would be idle at the end. The order is that
// of ScheduleInterleavedZeroBubble of torch.distributed.pipelining with one stage a rank.
namespace trireme::pipeline {

Schedule zb_h1(const ScheduleSize& size) {
  check_one_stage_a_rank("zb_h1", size);
  const int p = size.ranks, m = size.micro_batches;
  Schedule schedule{"zb_h1", m, looped_placement(p, 1), {}};
  for (int rank = 0; rank < p; ++rank) {
    const int ahead = std::min(p - 1 - rank, m), waiting = std::min(rank, m);
    ActionList list;
    for (int k = 0; k < ahead; ++k) list.f(rank, k);
    for (int k = 0; k < m; ++k) {
      if (k + ahead < m) list.f(rank, k + ahead);
      list.i(rank, k);
      if (k >= waiting) list.w(rank, k - waiting);
    }
    for (int k = m - waiting; k < m; ++k) list.w(rank, k);
    schedule.actions.push_back(std::move(list.actions));
  }
  return schedule;
}

}  // namespace trireme::pipeline
