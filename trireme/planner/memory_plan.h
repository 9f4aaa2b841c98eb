// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/planner/activations.h"
#include "trireme/planner/memory.h"

// A configuration on so many ranks → what each of them will hold.
namespace trireme {

/// One of several stages of a rank of a pipeline. Its activations are the most that it keeps, which
/// need not be when another stage does; buffers and snapshots are the rank's.
struct StageMemory {
  int stage = 0;  // of all ranks, in the order of the network
  std::string blocks;
  RankMemory memory;
};

/// A rank of a pipeline.
struct PipelineRank {
  std::string blocks;  // "embedding, 0-2", "3-5, head"; of a program "stem to blocks.2"
  RankMemory memory;
  std::vector<StageMemory> stages = {};  // where it has several
};

/// Of a model that is divided over ranks, what is said of a rank is said of the one with the most.
struct MemoryPlan {
  ModelShape model;  // whole
  Batches batches;
  Sharding sharding;
  Degrees degrees;
  bool sequence_parallel = false;
  MemoryQuestion question;
  ActivationMemory activations;
  int64_t recomputed = 0;  // blocks
  RankMemory rank;
  RankMemory mean;  // over the ranks of a pipeline, which differ; without one: rank
  std::vector<PipelineRank> pipeline;  // in the order of its ranks; empty without one
  /// "ZeRO-2 over 4 ranks, AdamW, bfloat16 with float32 masters, 8 samples at once, 3 of 6 blocks
  /// recomputed"; before it, "2 ranks of data parallelism × 2 of tensor parallelism".
  TRIREME_API std::string describe() const;
};

/// UsageError for what the configuration cannot be on so many ranks.
TRIREME_API MemoryPlan plan_memory(const Config& config, int ranks);
/// The same for a model that the configuration does not describe, whose modules are the blocks of a
/// pipeline. Its activations are unknown: the plan has none.
TRIREME_API MemoryPlan plan_memory(const Config& config, int ranks, ModelShape model);

/// A row for each rank of the pipeline; "" without one.
TRIREME_API std::string pipeline_table(const MemoryPlan& plan);
/// A row for each stage of the pipeline where ranks have several; else "".
TRIREME_API std::string stage_table(const MemoryPlan& plan);

/// "4.58 MiB", "512 B".
TRIREME_API std::string mebibytes(int64_t bytes);

}  // namespace trireme
