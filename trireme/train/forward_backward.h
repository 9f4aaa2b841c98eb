// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/data/batch.h"
#include "trireme/train/run.h"

namespace trireme {

struct LossSum {
  double sum = 0;      // over this rank's samples or tokens
  int64_t weight = 0;  // how many
};

Batch next_batch(Run& run);
/// Micro-batch by micro-batch. Dropout is keyed by (seed, step, sample), so the split into ranks
/// and micro-batches does not show.
LossSum forward_backward(Run& run, const Batch& batch);

}  // namespace trireme
