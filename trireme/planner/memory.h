// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/planner/model_shape.h"
#include "trireme/shard/shard_plan.h"  // kShardAlign

// THE memory formulas: parameters and a stage of ZeRO in, bytes of one rank out. Pure.
//
// With Ψ parameters over n ranks, w bytes a weight, g a gradient, s of optimizer state (float32
// masters among them), as Rajbhandari et al. 2020 have it:
//
//   stage 0   w Ψ    + g Ψ    + s Ψ
//   stage 1   w Ψ    + g Ψ    + s Ψ/n
//   stage 2   w Ψ    + g Ψ/n  + s Ψ/n
//   stage 3   w Ψ/n  + g Ψ/n  + s Ψ/n
//
// and what moves: activations, and buffers (gradients on their way, units that are whole, parts of
// states on their way to a disk, what compression keeps), snapshots of checkpoints. What is shared
// out is in flat buffers, where each parameter begins at a multiple of kAlign elements and each
// unit is padded to n × kAlign; Ψ above then counts the padding.
namespace trireme {

/// Which optimizer, for its state: float32 numbers beside the parameters (optim/optimizer.h).
struct OptimizerShape {
  std::string type = "AdamW";  // as optimizer.type has it
  bool momentum = false;       // SGD, Lars, RMSprop
  bool centered = false;       // RMSprop
  bool amsgrad = false;        // Adam, AdamW
};

struct MemoryQuestion {
  std::vector<ParameterShape> parameters;
  OptimizerShape optimizer;
  int weight_bytes = 4, gradient_bytes = 4;
  int master_bytes = 0;   // 4: float32 masters beside half-precision weights
  int compute_bytes = 0;  // of another copy of all weights that computing needs
  int wire_bytes = 4;     // of gradients between ranks
  int stage = 0, dp_shard = 1;
  bool share_weights = false;  // the ranks of dp_shard are on one host
  bool states_on_disk = false, parameters_on_disk = false;
  int64_t state_buffer_elements = 0;      // in memory at once, with states_on_disk
  int64_t parameter_buffer_elements = 0;  // with parameters_on_disk
  int64_t bucket_elements = 0;            // of gradients that travel together; stages 0 to 2
  int64_t prefetch_elements = 0, persistence_threshold = 0, live_elements = 0;  // of stage 3
  bool whole_for_step = false;  // stage 3 of a pipeline: all units are whole until the step ends
  int64_t whole_blocks = 0;     // of them, so many blocks at once by the schedule; 0: all
  int64_t group_bytes = 0;      // that the group of ranks keeps for itself
  int64_t exchange_bytes = 0;   // of compression and averaging: planner/exchange_memory.h
  int64_t snapshot_bytes = 0;   // of checkpoint.async and snapshot_every: planner/snapshot_memory.h
  int64_t activation_kept = 0, activation_bytes = 0;  // planner/activations.h: kept, peak
};

struct RankMemory {
  int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0, buffers = 0, snapshots = 0;
  int64_t total() const {
    return weights + gradients + optimizer + activations + buffers + snapshots;
  }
  /// What a stage may share out.
  int64_t states() const { return weights + gradients + optimizer; }
};

/// UsageError for a stage, a number of ranks or an optimizer that do not exist, and for Adafactor
/// shared out.
TRIREME_API RankMemory rank_memory(const MemoryQuestion& question);

/// float32 numbers of state that the optimizer keeps for a parameter; masters not counted.
TRIREME_API int64_t state_numbers(const OptimizerShape& optimizer, const ParameterShape& parameter);
/// Elements of each unit in the flat buffer, padded for n ranks; by unit.
TRIREME_API std::vector<int64_t> padded_units(const std::vector<ParameterShape>& parameters,
                                              int64_t n);
/// Blocks that are whole at once in stage 3: the one that computes, and those gathered ahead, as
/// far as `live_elements` allows.
TRIREME_API int64_t units_in_flight(const std::vector<int64_t>& units, int64_t prefetch_elements,
                                    int64_t live_elements);

}  // namespace trireme
