// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"
#include "trireme/planner/model_shape.h"

// What a micro-batch's forward and backward hold beside weights and gradients. Pure.
//
// Of a GPT block backward needs, per token: both norms' outputs (2 w), q, k and v (3 w), the
// attention's output (w), the stream behind it (w), the feed-forward before and after GELU (8 w)
// and the block's own output (w), w = width: 16 w numbers; the attention's sums (one a head) and
// the norms' means and deviations (4) are float32. Recomputed, it keeps its output alone. Dropout
// keeps nothing: its mask is computed again.
//
// Of t ranks that divide the layers, each computes between the layers on 1/t of what those give:
// 12 w / t of the 16 w, and the sums of its heads. The other 4 w (the norms' outputs and the
// stream) are whole on every rank, and 1/t of the positions with sequence_parallel. Of the scores
// each rank has its part of the vocabulary, in the model's own type, until their gradient is there.
//
// A stage of a pipeline has its blocks, the first one the embedding and the last one the scores; a
// rank keeps what the micro-batches that are under way at once need, as the schedule has it. Where
// a backward comes in two halves (pipeline/split_backward.h), all of that is kept to the end of the
// second, and beside it the gradients that the first one notes for it: of a block those of both
// norms (2 w) and of the outputs of its four products (9 w, of which t ranks share 7 w).
namespace trireme {

struct ActivationQuestion {
  ModelGeometry model;
  int64_t micro_batch = 1;  // samples
  int element_bytes = 4;    // of what the model computes in
  int64_t recomputed = 0;   // blocks
  ModelPart part = {};      // stages: one at most, whose blocks are all there are
};

struct ActivationMemory {
  int64_t kept = 0;   // from forward to backward, the loss computed
  int64_t peak = 0;   // the most at once
  int64_t noted = 0;  // of a stage: beside what is kept, from input gradients to weight gradients
};

TRIREME_API ActivationMemory activation_memory(const ActivationQuestion& question);

/// The fewest blocks with which the peak is within `budget` bytes; all of them where none suffice.
TRIREME_API int64_t blocks_to_recompute(ActivationQuestion question, int64_t budget);

/// Of one rank of a pipeline. `of_a_stage`: of one micro-batch, one entry for each stage of all
/// ranks. A stage keeps what it needs until the micro-batch's weight gradient.
TRIREME_API ActivationMemory pipeline_activations(const pipeline::Schedule& schedule, int rank,
                                                  const std::vector<ActivationMemory>& of_a_stage);

}  // namespace trireme
