// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/shard/sharded_parameters.h"

// ZeRO over the data-parallel ranks beside layers that are divided over others (tensor
// parallelism), in a loop of your own: what it does between backward and the optimizer's step. The
// shards have the gradients then, and the module's parameters have none.
//
//   ShardedDataParallel zero(net, mesh.group("dp_shard"));
//   ShardedOptimizer<AdamW> optimizer(zero.sharded(), AdamWOptions(1e-3));
//   loop: loss.backward();
//         add_shared_gradients(zero.sharded(), tp.group());
//         clip_grad_norm(zero.sharded(), tp.group(), 1.0);
//         optimizer.step();
namespace trireme {

/// Adds the gradients that are parts of a sum over `tp`, the tensor-parallel group (layout `sum` on
/// `axis`: norms, biases of row-parallel layers and positions under sequence_parallel). Without
/// such parameters nothing is sent. Every rank calls it once before the step. UsageError where
/// nothing says how parameters are divided (shards of a list of tensors); so clip_grad_norm().
TRIREME_API void add_shared_gradients(ShardedParameters& sharded, Group tp,
                                      const std::string& axis = "tp");

/// torch::nn::utils::clip_grad_norm_() of the whole model: each element counts once, wherever it
/// lies. Scales the shards' gradients in place by max_norm / (norm + 1e-6) if that is less than 1,
/// and returns the norm before. The same on every rank, from float64 sums. After
/// add_shared_gradients(). Every rank calls it.
TRIREME_API double clip_grad_norm(ShardedParameters& sharded, Group tp, double max_norm,
                                  const std::string& axis = "tp");

}  // namespace trireme
