// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include "trireme/base/export.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

// What a loop of your own does with gradients between backward and the optimizer's step, over the
// tensor-parallel group. Gradients are first reduced over the data-parallel axis, as ever.
namespace trireme {

/// Adds the gradients that are parts of a sum (layout `sum` on the group's axis: norms, biases of
/// row-parallel layers and positions under sequence_parallel), one call for each dtype. Nothing
/// else changes, and without such parameters nothing is sent. A parameter that no rank used keeps
/// no gradient. Every rank calls it once for each backward whose gradients it adds: before the
/// step, not in between, or after each of them.
TRIREME_API void add_shared_gradients(const torch::nn::Module& module, const TensorParallel& tp);

/// torch::nn::utils::clip_grad_norm_() of the whole model: each element counts once, wherever it
/// lies. Scales the gradients in place by max_norm / (norm + 1e-6) if that is less than 1, and
/// returns the norm before. The same on every rank, from float64 sums. After
/// add_shared_gradients(). Every rank calls it. UsageError on all of them if no parameter has a
/// gradient: under ZeRO the shards have them (shard/divided_shards.h).
TRIREME_API double clip_grad_norm(const torch::nn::Module& module, const TensorParallel& tp,
                                  double max_norm);

/// Compares what should be equal on several ranks: parameters that every rank holds and parts that
/// some hold alike (key/value heads that they share), the gradients that they have, and buffers.
/// Throws UsageError on every rank, which names one that differs and the ranks: one whose layout is
/// wrong (a torch::nn::LayerNorm inside of sequence_parallel, whose gradients nobody adds), or
/// whose ranks were initialised or stepped in different ways. For some steps, not for each: it
/// reads all of them, and sends their names. After add_shared_gradients(). Every rank calls it.
TRIREME_API void check_replicas(const torch::nn::Module& module, const TensorParallel& tp);

}  // namespace trireme
