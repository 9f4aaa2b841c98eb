// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

namespace trireme {

enum class LossReduction : uint8_t { none, sum, mean };

struct CrossEntropyOptions {
  int64_t ignore_index = -100;   // targets of this value count nothing
  double label_smoothing = 0.0;  // in [0, 1]: this much of the target spread over the vocabulary
  LossReduction reduction = LossReduction::mean;  // mean: over targets that are not ignored
};

/// torch.nn.functional.cross_entropy() of logits of which each rank has those of its part of the
/// vocabulary: the whole logits never exist. logits: […, this rank's part of `vocabulary`], as
/// VocabParallelEmbedding::logits() or a ColumnParallelLinear of `vocabulary` outputs gives them;
/// target: int64, the logits' sizes but the last, the same on all ranks. The loss is equal on all
/// ranks, in float32 (float64 for float64 logits), in which everything is added.
///
/// One exchange of three numbers a row and rank forward, none backward; kept for backward are the
/// logits and two numbers a row. Can be differentiated once. Every rank calls it. UsageError for
/// logits that are not this rank's part (whole ones would add log(ranks) to the loss), and on every
/// rank for a target outside of the vocabulary; on a device such a row is NaN.
/// (Megatron-LM's vocab_parallel_cross_entropy; torch's loss_parallel.)
TRIREME_API at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits,
                                                    const at::Tensor& target, int64_t vocabulary,
                                                    const TensorParallel& tp,
                                                    CrossEntropyOptions options = {});

/// The vocabulary's id of the largest logit of each row, the lowest of them if several are equal:
/// logits.argmax(-1) of the whole logits, which do not exist. Equal on all ranks. One exchange of
/// two numbers a row and rank. Every rank calls it.
TRIREME_API at::Tensor vocab_parallel_argmax(const at::Tensor& logits, int64_t vocabulary,
                                             const TensorParallel& tp);

}  // namespace trireme
