// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

// Which blocks of a network each stage of a pipeline has. Pure.
namespace trireme::pipeline {

/// Blocks [begin, end) of a network. The first stage also has what is before the blocks (the
/// embedding), the last one what is behind them (the head and the loss).
struct StageBlocks {
  int64_t begin = 0, end = 0;
  bool first = true, last = true;
  bool operator==(const StageBlocks&) const = default;
};

/// One entry for each stage. `counts`: how many blocks each has; empty: equally many, and the first
/// stages one more where that does not divide. Throws UsageError, with the numbers, for more stages
/// than blocks, and for counts that are not of these stages or do not add up.
TRIREME_API std::vector<StageBlocks> divide_blocks(int64_t blocks, int stages,
                                                   const std::vector<int64_t>& counts = {});

/// How many blocks each stage gets so that the slowest stage is as fast as can be, and then the
/// others as equal as can be; of several such divisions the one whose first stages have more.
/// `costs`: of each block in any unit, not negative; with equal ones the stages get equally many.
/// Throws UsageError for more stages than blocks, and for costs that are no such numbers.
TRIREME_API std::vector<int64_t> counts_by_cost(const std::vector<double>& costs, int stages);

/// What is asked for of a pipeline.
struct PipelineShape {
  std::string schedule = "1f1b";
  int ranks = 1;
  int stages_per_rank = 0;  // 0: as many as the schedule has unless somebody says it
  int micro_batches = 1;
  int64_t blocks = 1;                // of the network
  std::vector<int64_t> counts = {};  // of blocks, by stage
  std::vector<double> costs = {};    // of each block, if `counts` is empty; empty: equal
  /// A proven table (table_file.h) in place of `schedule` and `stages_per_rank`.
  std::optional<Schedule> table = {};
  /// Sums of gradients and losses are to have the bits of one process. The schedules that have a
  /// name give them so; a table does if its micro-batches come in order.
  bool same_bits = false;
};
struct PipelinePlan {
  Schedule schedule;                // what is computed
  std::vector<StageBlocks> stages;  // of all ranks
};
/// Throws UsageError in one sentence where the schedule's conditions do not hold, a table is for
/// other ranks or micro-batches, or the blocks do not suit the stages.
TRIREME_API PipelinePlan plan_pipeline(const PipelineShape& shape);

}  // namespace trireme::pipeline
