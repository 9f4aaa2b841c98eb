// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

// Feed-forward blocks of which each rank holds a part of the hidden units: any number of units, of
// which ranks may have one granule more than others. x and the result are as ColumnParallelLinear
// takes it and RowParallelLinear gives it. Every rank calls them.
namespace trireme {

struct ParallelMlpOptions {
  bool bias = true;
  int64_t granule = 1;  // hidden units
};

/// down(gelu(up(x))), GELU in its tanh form, as in GPT-2. Parameters: up, down.
struct TRIREME_API ParallelGeluMlp : torch::nn::Module {
  ParallelGeluMlp(TensorParallel tp, int64_t width, int64_t hidden,
                  ParallelMlpOptions options = {});
  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0) const;
  std::shared_ptr<ColumnParallelLinear> up;
  std::shared_ptr<RowParallelLinear> down;
};

/// down(silu(gate(x)) · up(x)), as in LLaMA. Parameters: gate_up, whose outputs are the gates of
/// all hidden units and then their ups, and down. (Shazeer, GLU Variants, 2020.)
struct TRIREME_API ParallelSwiGlu : torch::nn::Module {
  ParallelSwiGlu(TensorParallel tp, int64_t width, int64_t hidden,
                 ParallelMlpOptions options = {.bias = false});
  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0) const;
  std::shared_ptr<ColumnParallelLinear> gate_up;
  std::shared_ptr<RowParallelLinear> down;
};

}  // namespace trireme
