// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/pipeline/schedule/generators/lists.h"

// 1F1B (Narayanan et al. 2021, PipeDream-Flush): a rank computes as many forwards as there are
// ranks behind it, then one forward and one backward in turn, so that at most p inputs are kept.
namespace trireme::pipeline {

Schedule one_forward_one_backward(const ScheduleSize& size) {
  check_one_stage_a_rank("1f1b", size);
  Schedule schedule{"1f1b", size.micro_batches, looped_placement(size.ranks, 1), {}};
  for (int rank = 0; rank < size.ranks; ++rank) {
    const int ahead = std::min(size.ranks - 1 - rank, size.micro_batches);
    ActionList list;
    for (int k = 0; k < ahead; ++k) list.f(rank, k);
    for (int k = 0; k < size.micro_batches; ++k) {
      if (k + ahead < size.micro_batches) list.f(rank, k + ahead);
      list.b(rank, k);
    }
    schedule.actions.push_back(std::move(list.actions));
  }
  return schedule;
}

}  // namespace trireme::pipeline
