// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/data/batch.h"
#include "trireme/train/run.h"

namespace trireme {

Batch next_batch(Run& run);
/// Micro-batch by micro-batch. Dropout is keyed by (seed, step, sample), so the split into ranks
/// and micro-batches does not show. The loss, and stop_asked, ride with the gradients.
void forward_backward(Run& run, const Batch& batch, int stop_asked = 0);

}  // namespace trireme
