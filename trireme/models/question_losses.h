// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/export.h"

// Losses of classes and numbers as *sums* over the rows that count, in float32 (float64 for
// float64), and how many those are: a Program returns the sums from loss() and the counts from
// weights(), so that ranks and micro-batches of any split give one process's mean. A row counts
// unless its target is negative; a target that is no class is an error of LibTorch's.
namespace trireme {

/// Σ −log softmax(logits)[target]. logits [n, classes], targets [n] int64.
TRIREME_API at::Tensor cross_entropy_of_rows(const at::Tensor& logits, const at::Tensor& targets);
/// Σ −(1 − p)^gamma · log p, p = softmax(logits)[target] (Lin et al. 2017).
TRIREME_API at::Tensor focal_loss_of_rows(const at::Tensor& logits, const at::Tensor& targets,
                                          double gamma = 2);
/// Σ over rows and classes of −q · log softmax(logits), with q = 1 − smoothing for the target and
/// smoothing ÷ (classes − 1) for each other class. UsageError for smoothing outside [0, 1) or fewer
/// than two classes.
TRIREME_API at::Tensor smoothed_cross_entropy_of_rows(const at::Tensor& logits,
                                                      const at::Tensor& targets, double smoothing);
/// Σ (values − targets)². Both [n].
TRIREME_API at::Tensor squared_error_of_rows(const at::Tensor& values, const at::Tensor& targets);
/// The rows whose target is not negative.
TRIREME_API int64_t rows_that_count(const at::Tensor& targets);

}  // namespace trireme
