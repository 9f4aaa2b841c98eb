// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// One forward and backward on one rank: tensors whose first dimension is the sample. Undefined
/// ones are allowed: what they mean is the source's and the loss's affair.
struct TRIREME_API MicroBatch {
  at::Tensor input;              // [b, …]
  at::Tensor target;             // of the built-in models: [b] classes or [b, t] tokens (int64)
  std::vector<int64_t> samples;  // global id of each row in the epoch's order: what keys dropout
  int64_t weight = 0;  // what the loss is a mean over: samples, or tokens; 0: it counts nothing
  std::vector<int64_t> row_weights = {};  // of each row, where they differ; empty: they are equal
  std::vector<std::pair<std::string, at::Tensor>> more = {};  // others, by name

  /// "input", "target", or one of `more`. UsageError, with the names there are, for any other.
  const at::Tensor& tensor(const std::string& name) const;
};

/// What one rank does in one optimizer step.
using Batch = std::vector<MicroBatch>;

/// The same samples in micro-batches of at most `most` rows: as few as go, as equal as they go; the
/// tensors are views. UsageError where rows do not weigh the same and `row_weights` does not say
/// what each does.
TRIREME_API Batch cut_micro_batch(const MicroBatch& micro, int64_t most);

}  // namespace trireme
