// SPDX-License-Identifier: Apache-2.0
// What a plan says of the ranks and the stages of a pipeline, for people.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/planner/memory_plan.h"

namespace trireme {

std::string pipeline_table(const MemoryPlan& plan) {
  if (plan.pipeline.empty()) return "";
  size_t widest = 6;
  for (const PipelineRank& rank : plan.pipeline) widest = std::max(widest, rank.blocks.size());
  std::string text =
      fmt::format("{:<8}{:<{}}{:>12}{:>12}{:>12}{:>13}{:>12}{:>12}\n", "pp rank", "blocks", widest,
                  "weights", "gradients", "optimizer", "activations", "buffers", "total");
  for (size_t r = 0; r < plan.pipeline.size(); ++r) {
    const RankMemory& m = plan.pipeline[r].memory;
    text += fmt::format("{:<8}{:<{}}{:>12}{:>12}{:>12}{:>13}{:>12}{:>12}\n", r,
                        plan.pipeline[r].blocks, widest, mebibytes(m.weights),
                        mebibytes(m.gradients), mebibytes(m.optimizer), mebibytes(m.activations),
                        mebibytes(m.buffers + m.snapshots), mebibytes(m.total()));
  }
  return text;
}

std::string stage_table(const MemoryPlan& plan) {
  struct Row {
    size_t rank;
    const StageMemory* stage;
  };
  std::vector<Row> rows;
  size_t widest = 6;
  for (size_t r = 0; r < plan.pipeline.size(); ++r)
    for (const StageMemory& stage : plan.pipeline[r].stages) {
      rows.push_back({r, &stage});
      widest = std::max(widest, stage.blocks.size());
    }
  if (rows.empty()) return "";
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.stage->stage < b.stage->stage; });
  std::string text =
      fmt::format("{:<6}{:<8}{:<{}}{:>12}{:>12}{:>12}{:>13}\n", "stage", "pp rank", "blocks",
                  widest, "weights", "gradients", "optimizer", "activations");
  for (const auto& [rank, stage] : rows)
    text +=
        fmt::format("{:<6}{:<8}{:<{}}{:>12}{:>12}{:>12}{:>13}\n", stage->stage, rank, stage->blocks,
                    widest, mebibytes(stage->memory.weights), mebibytes(stage->memory.gradients),
                    mebibytes(stage->memory.optimizer), mebibytes(stage->memory.activations));
  return text;
}

}  // namespace trireme
