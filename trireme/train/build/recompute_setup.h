// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/recompute/recompute_plan.h"
#include "trireme/train/run.h"

// Selects the blocks of the model that are recomputed in backward, from training.recompute_every
// and training.activation_memory_mb.
namespace trireme {

/// Measures what a forward of this rank's micro-batch keeps for backward, on the first samples: one
/// forward with every block recomputed and one with all but the first, so that at most one block is
/// ever kept. Bytes before, between and after blocks count as `before`. It draws no random numbers
/// and changes no statistics or gradients.
TRIREME_API ActivationBytes measure_activations(Run& run);

/// Sets up the model's blocks, the same ones on every rank: a budget counts what the fullest rank
/// keeps, so every rank of the run calls this. Returns the sentence for the run's start line,
/// or "" if no block is recomputed. Throws UsageError, with the numbers, if the budget is too small
/// even with all blocks recomputed.
TRIREME_API std::string set_up_recompute(Run& run, const Config& config);

}  // namespace trireme
