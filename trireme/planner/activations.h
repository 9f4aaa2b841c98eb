// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/planner/model_shape.h"

// What a micro-batch's forward and backward hold beside weights and gradients. Pure.
//
// Of a GPT block backward needs, per token: both norms' outputs (2 w), q, k and v (3 w), the
// attention's output (w), the stream behind it (w), the feed-forward before and after GELU (8 w)
// and the block's own output (w), w = width: 16 w numbers; the attention's sums (one a head) and
// the norms' means and deviations (4) are float32. Recomputed, it keeps its output alone. Dropout
// keeps nothing: its mask is computed again.
namespace trireme {

struct ActivationQuestion {
  ModelGeometry model;
  int64_t micro_batch = 1;  // samples
  int element_bytes = 4;    // of what the model computes in
  int64_t recomputed = 0;   // blocks
};

struct ActivationMemory {
  int64_t kept = 0;  // from forward to backward, the loss computed
  int64_t peak = 0;  // the most at once
};

TRIREME_API ActivationMemory activation_memory(const ActivationQuestion& question);

/// The fewest blocks with which the peak is within `budget` bytes; all of them where none suffice.
TRIREME_API int64_t blocks_to_recompute(ActivationQuestion question, int64_t budget);

}  // namespace trireme
