// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/action.h"

namespace trireme::pipeline {

/// Who computes what in which order: one list of actions for each rank of a pipeline, which the
/// rank walks from its first to its last in each step. It holds no times.
struct Schedule {
  std::string name;
  int micro_batches = 0;
  std::vector<int> rank_of_stage;            // one entry a stage; -1: no rank has it
  std::vector<std::vector<Action>> actions;  // one list a rank

  int ranks() const { return static_cast<int>(actions.size()); }
  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  bool same_rank(int stage, int other) const {
    return rank_of_stage[static_cast<size_t>(stage)] == rank_of_stage[static_cast<size_t>(other)];
  }
  /// The stage that a message or an input comes from, of which `a` is the receive or the consumer;
  /// -1 where there is none (the first stage's forward, the last stage's backward, W).
  TRIREME_API int source_of(const Action& a) const;
  TRIREME_API bool has_messages() const;  // complete, or only what is computed
  TRIREME_API bool has_units() const;
  TRIREME_API bool has_gathers() const;     // of units
  TRIREME_API bool has_reductions() const;  // of single micro-batches
};

/// What may be asked for, so that no table takes gigabytes: a bound on stages × micro-batches, and
/// on each of them.
inline constexpr int kMostRanks = 1024, kMostStages = 8192, kMostMicroBatches = 65536;
inline constexpr long kMostCells = 1L << 20;

/// Stage s on rank s mod p: the rank of the last stage sends to the first rank, in a loop.
std::vector<int> looped_placement(int ranks, int stages_per_rank);

/// Two stages a rank: down the ranks and up again, so that rank 0 has the first and the last.
std::vector<int> v_placement(int ranks);

/// A schedule from the rows of a table, one a rank: a stage is on the rank whose row computes it
/// first. Says nothing about whether the table is right; check_schedule() does.
TRIREME_API Schedule schedule_of_rows(std::string name, std::vector<std::vector<Action>> rows);

/// Without sends, receives and units.
TRIREME_API Schedule only_compute(Schedule schedule);

}  // namespace trireme::pipeline
