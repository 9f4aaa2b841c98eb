// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/generators/lists.h"

// All forwards, then all backwards (Huang et al. 2019; the order is ScheduleGPipe's of
// torch.distributed.pipelining, where backwards begin with micro-batch 0).
namespace trireme::pipeline {

Schedule gpipe(const ScheduleSize& size) {
  check_one_stage_a_rank("gpipe", size);
  Schedule schedule{"gpipe", size.micro_batches, looped_placement(size.ranks, 1), {}};
  for (int rank = 0; rank < size.ranks; ++rank) {
    ActionList list;
    for (int k = 0; k < size.micro_batches; ++k) list.f(rank, k);
    for (int k = 0; k < size.micro_batches; ++k) list.b(rank, k);
    schedule.actions.push_back(std::move(list.actions));
  }
  return schedule;
}

}  // namespace trireme::pipeline
