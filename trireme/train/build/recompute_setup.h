// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/recompute/recompute_plan.h"
#include "trireme/train/run.h"

// training.recompute_every and training.activation_memory_mb → which blocks of the model are
// computed again in backward.
namespace trireme {

/// What a forward of this rank's micro-batch keeps for backward, measured on the first samples: one
/// forward with every block recomputed and one with all but the first, so that no more than one
/// block is ever kept. Bytes that lie before, between and after blocks count as `before`. Draws
/// nothing, moves no statistics, changes no gradient.
TRIREME_API ActivationBytes measure_activations(Run& run);

/// Sets the model's blocks up; the sentence for the run's first line, "" where all keep their
/// values. UsageError, with the numbers, where the budget is too small even with all recomputed.
TRIREME_API std::string set_up_recompute(Run& run, const Config& config);

}  // namespace trireme
