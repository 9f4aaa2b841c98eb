// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/data/batch.h"
#include "trireme/train/run.h"

namespace trireme {

Batch next_batch(Run& run);
/// Gradients that each parameter gets from it; Gradients::kAsManyAsCome while that may change.
int contributions(const Run& run, const Batch& batch);
/// Micro-batch by micro-batch. Dropout is keyed by (seed, step, sample), so the split into ranks
/// and micro-batches does not show. The loss, and stop_asked, ride with the gradients.
void forward_backward(Run& run, const Batch& batch, int stop_asked = 0);
/// What goes wrong in one rank's own computation ends the step for all, with its words.
void abort_group_on_error(Run& run, const std::function<void()>& own_computation);

}  // namespace trireme
