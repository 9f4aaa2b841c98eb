// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/data/batch.h"
#include "trireme/train/run.h"

namespace trireme {

Batch next_batch(Run& run);
/// Returns the number of gradients that each parameter gets from the batch, or
/// Gradients::kAsManyAsCome while that may change.
int contributions(const Run& run, const Batch& batch);
/// Runs forward and backward for each micro-batch. Dropout is keyed by (seed, step, sample), so the
/// split into ranks and micro-batches does not affect it. The loss and stop_asked travel with the
/// gradients.
void forward_backward(Run& run, const Batch& batch, int stop_asked = 0);
/// Runs `own_computation`; if it throws, the step ends on all ranks with the same message. An
/// operator that the run's device lacks is a UsageError (tensor/missing_operator.h).
void abort_group_on_error(Run& run, const std::function<void()>& own_computation);
/// After an error that one of the mesh's groups had: tells it in the other groups too, whose ranks
/// do not wait for the one that failed. Nothing for other errors, which all ranks have.
void pass_on(Run& run, const Error& error);

}  // namespace trireme
