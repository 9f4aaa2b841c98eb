// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/stage_blocks.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/pipeline/schedule/generators.h"

namespace trireme::pipeline {

std::vector<StageBlocks> divide_blocks(int64_t blocks, int stages,
                                       const std::vector<int64_t>& counts) {
  check<UsageError>(stages >= 1, "a pipeline of {} stages", stages);
  check<UsageError>(stages <= blocks,
                    "{} stages, and the model has {} blocks: each stage needs one, so use fewer "
                    "ranks or stages",
                    stages, blocks);
  std::vector<int64_t> each = counts;
  if (each.empty())
    for (int s = 0; s < stages; ++s) each.push_back(blocks / stages + (s < blocks % stages));
  check<UsageError>(each.size() == static_cast<size_t>(stages),
                    "the blocks of {} stages are given, and the pipeline has {}", each.size(),
                    stages);
  const int64_t sum = std::accumulate(each.begin(), each.end(), int64_t{0});
  check<UsageError>(sum == blocks, "the stages have {} blocks together, and the model has {}", sum,
                    blocks);
  std::vector<StageBlocks> all;
  int64_t begin = 0;
  for (int s = 0; s < stages; ++s) {
    const int64_t count = each[static_cast<size_t>(s)];
    check<UsageError>(count >= 1, "stage {} has {} blocks: each stage needs one", s, count);
    all.push_back({begin, begin + count, s == 0, s + 1 == stages});
    begin += count;
  }
  return all;
}

PipelinePlan plan_pipeline(const PipelineShape& shape) {
  int each = shape.stages_per_rank;
  for (const ScheduleKind& kind : schedule_kinds())
    if (each == 0 && shape.schedule == kind.name) each = kind.stages_per_rank;
  PipelinePlan plan{generate_schedule(shape.schedule, {.ranks = shape.ranks,
                                                       .micro_batches = shape.micro_batches,
                                                       .stages_per_rank = std::max(each, 1)}),
                    {}};
  plan.stages = divide_blocks(shape.blocks, plan.schedule.stages(), shape.counts);
  return plan;
}

}  // namespace trireme::pipeline
