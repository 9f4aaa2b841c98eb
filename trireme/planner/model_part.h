// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/layers/tensor_parallel/split_plan.h"
#include "trireme/pipeline/schedule/stage_blocks.h"

// What one rank has of a network that is divided over ranks (parallelism.tp, parallelism.pp).
namespace trireme {

struct ModelPart {
  int tp = 1, tp_rank = 0;         // of how many ranks that hold parts of the same layers, which
  bool sequence_parallel = false;  // with tp: positions between those layers are divided too
  std::vector<pipeline::StageBlocks> stages = {};  // of a pipeline; empty: the whole network

  /// This rank's part of a dimension, by the plan of the layers.
  int64_t part_of(int64_t total) const {
    return split_evenly(total, tp)[static_cast<size_t>(tp_rank)].length;
  }
};

/// Why the configured model cannot be divided over so many ranks, where the numbers come from, and
/// what to do; "" if it can be. For degrees that have been resolved.
TRIREME_API std::string fault_of_division(const Config& config, int world);

/// The schedule and the stages of the configured pipeline. UsageError where it cannot be. What is
/// measured at start (parallelism.partition_method) is not known here: the blocks count as equal.
TRIREME_API pipeline::PipelinePlan pipeline_of(const Config& config, int world);
/// The same for a model that the configuration does not describe: the cost of each of its blocks.
TRIREME_API pipeline::PipelinePlan pipeline_of(const Config& config, int world,
                                               const std::vector<double>& costs);

/// The parts of the ranks of the pipeline, one of them without a pipeline. Of the ranks that hold
/// parts of the same layers it is the last one's, who has the most: parts may differ by one row.
TRIREME_API std::vector<ModelPart> fullest_parts(const Config& config, int world);

}  // namespace trireme
