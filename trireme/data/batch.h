// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// One forward and backward on one rank. input: [b, …]; target: [b] classes or [b, t] tokens
/// (int64).
struct MicroBatch {
  at::Tensor input, target;
  std::vector<int64_t> samples;  // global id of each row in the epoch's order: what keys dropout
  int64_t weight = 0;  // what the loss is a mean over: samples, or tokens; 0: it counts nothing
  std::vector<int64_t> row_weights = {};  // of each row, where they differ; empty: they are equal
};

/// What one rank does in one optimizer step.
using Batch = std::vector<MicroBatch>;

/// The same samples in micro-batches of at most `most` rows: as few as go, as equal as they go; the
/// tensors are views. UsageError where rows do not weigh the same and `row_weights` does not say
/// what each does.
TRIREME_API Batch cut_micro_batch(const MicroBatch& micro, int64_t most);

}  // namespace trireme
