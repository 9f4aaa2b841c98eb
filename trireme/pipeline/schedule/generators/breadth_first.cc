// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/generators/lists.h"

// Breadth-first (Lamy-Poirier 2023; ScheduleLoopedBFS of torch.distributed.pipelining): a rank
// passes all micro-batches through its first stage, then through its next, and returns in the
// opposite order. A stage's parameters are needed in one stretch each way, which suits ZeRO-3.
namespace trireme::pipeline {

Schedule breadth_first(const ScheduleSize& size) {
  const int p = size.ranks, m = size.micro_batches, v = size.stages_per_rank;
  Schedule schedule{"breadth_first", m, looped_placement(p, v), {}};
  for (int rank = 0; rank < p; ++rank) {
    ActionList list;
    for (int chunk = 0; chunk < v; ++chunk)
      for (int k = 0; k < m; ++k) list.f(chunk * p + rank, k);
    for (int chunk = v - 1; chunk >= 0; --chunk)
      for (int k = m - 1; k >= 0; --k) list.b(chunk * p + rank, k);
    schedule.actions.push_back(std::move(list.actions));
  }
  return schedule;
}

}  // namespace trireme::pipeline
