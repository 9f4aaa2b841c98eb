// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// The samples of one forward and backward on one rank: tensors whose first dimension is the
/// sample. A tensor may be undefined where neither the source nor the loss uses it.
struct TRIREME_API MicroBatch {
  at::Tensor input;   // [b, …]
  at::Tensor target;  // for the built-in models: [b] classes or [b, t] tokens (int64)
  /// Global id of each row in the epoch's order; dropout is keyed by it.
  std::vector<int64_t> samples;
  int64_t weight = 0;  // what the loss is a mean over: samples, or tokens; 0: it does not count
  std::vector<int64_t> row_weights = {};  // one per row where they differ; empty: all equal
  std::vector<std::pair<std::string, at::Tensor>> more = {};  // further tensors, by name

  /// "input", "target", or one of `more`. UsageError listing the names that exist for any other.
  const at::Tensor& tensor(const std::string& name) const;
};

/// What one rank does in one optimizer step.
using Batch = std::vector<MicroBatch>;

/// Splits the samples into as few micro-batches of at most `most` rows as possible, of sizes as
/// equal as possible; the tensors are views. UsageError if rows have different weights and
/// `row_weights` does not list them.
TRIREME_API Batch cut_micro_batch(const MicroBatch& micro, int64_t most);

}  // namespace trireme
