// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/layers/context_parallel/context_parallel.h"
#include "trireme/layers/half_attention.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/layers/tensor_parallel/split_plan.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

namespace trireme {

struct ParallelAttentionOptions {
  int64_t width = 0;
  int64_t heads = 0;     // of queries; they divide the width and are divided by the ranks
  int64_t kv_heads = 0;  // of keys and values, each for heads / kv_heads query heads; 0: heads
  bool bias = true;
};

/// Causal self-attention (layers/causal_attention.h) of which each rank holds whole heads. One
/// fused projection gives the queries of all heads, then the keys, then the values. Where there are
/// fewer key/value heads than ranks, each is held by the ranks whose queries it serves: they
/// compute it from the same weights, and backward adds their gradients, so that these stay equal.
/// x and the result: as ColumnParallelLinear takes it and RowParallelLinear gives it, [batch,
/// positions, width]. Parameters: qkv, proj. With a ContextParallel, each of its ranks has its
/// positions of a row, which the ranks of the tensor-parallel group divide again.
///
/// The first forward() may make a group of the ranks that share heads. UsageError, with the
/// numbers, for heads that do not divide.
struct TRIREME_API ParallelAttention : torch::nn::Module, AttendsHalf {
  ParallelAttention(TensorParallel tp, ParallelAttentionOptions options,
                    ContextParallel cp = ContextParallel::alone());
  /// `sequence`: the positions of all ranks, 0: as many on each. `starts`: where the documents of
  /// all positions start, [batch, sequence], if rows hold several.
  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0,
                     const at::Tensor& starts = {}) const;
  std::shared_ptr<ColumnParallelLinear> qkv;
  std::shared_ptr<RowParallelLinear> proj;

 private:
  at::Tensor attend_grouped(const at::Tensor& projected, int64_t time,
                            const at::Tensor& starts) const;

  TensorParallel tp_;
  ContextParallel cp_;
  ParallelAttentionOptions options_;
  HeadParts parts_;
};

}  // namespace trireme
