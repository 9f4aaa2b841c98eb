// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/check.h"
#include "trireme/pipeline/schedule/generators.h"

// What generators write their lists with.
namespace trireme::pipeline {

struct ActionList {
  std::vector<Action> actions;

  void f(int stage, int micro_batch) { add(ActionKind::forward, stage, micro_batch); }
  void b(int stage, int micro_batch) { add(ActionKind::backward, stage, micro_batch); }
  void i(int stage, int micro_batch) { add(ActionKind::input_gradient, stage, micro_batch); }
  void w(int stage, int micro_batch) { add(ActionKind::weight_gradient, stage, micro_batch); }

 private:
  void add(ActionKind kind, int stage, int micro_batch) {
    actions.push_back({kind, stage, micro_batch});
  }
};

inline void check_one_stage_a_rank(const char* name, const ScheduleSize& size) {
  check<UsageError>(size.stages_per_rank == 1,
                    "{} has one stage on each rank, not {}: leave out -v, or choose "
                    "interleaved_1f1b or breadth_first",
                    name, size.stages_per_rank);
}

inline void check_two_stages_a_rank(const char* name, const ScheduleSize& size) {
  check<UsageError>(size.stages_per_rank == 2,
                    "{} has two stages on each rank, in the shape of a V, not {}: choose -v 2",
                    name, size.stages_per_rank);
}

}  // namespace trireme::pipeline
