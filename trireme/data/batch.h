// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trireme {

/// One forward and backward on one rank. input: [b, …]; target: [b] classes or [b, t] tokens (int64).
struct MicroBatch {
  at::Tensor input, target;
  std::vector<int64_t> samples;  // global id of each row in the epoch's order: what keys dropout
  int64_t weight = 0;            // what the loss is a mean over: samples, or tokens
};

/// What one rank does in one optimizer step.
using Batch = std::vector<MicroBatch>;

}  // namespace trireme
