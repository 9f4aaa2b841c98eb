// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/layers/half_products.h"
#include "trireme/layers/tensor_parallel/split_plan.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"
#include "trireme/tensor/parameter_layout.h"

// Linear layers of which each rank holds a part: y = x·Aᵀ + b. A column-parallel layer gives each
// rank some of the outputs, a row-parallel one takes some of the inputs from each and adds. One
// behind the other, with anything between them that works on each output alone, they need one
// all_reduce forward and one backward, or with sequence_parallel a gather and a reduce_scatter
// each. Parameters are born as NaN: load or initialise them (normal_() with layouts_of(),
// part_of()). (Shoeybi et al., Megatron-LM, 2019; Korthikanti et al., 2022.)
namespace trireme {

struct ParallelLinearOptions {
  bool bias = true;
  int64_t granule = 1;  // parts are multiples of it; the last one may be shorter
};

/// x: […, in], whole and equal on all ranks; with sequence_parallel this rank's part [batch,
/// positions, in]. Returns […, this rank's outputs]. float32, float64, bfloat16; under autocast the
/// product is of its dtype.
///
/// `sequence`: with sequence_parallel, the positions of all ranks; 0: as many on each. Every rank
/// calls it. Backward sends the input's gradient while the weight's is computed.
struct TRIREME_API ColumnParallelLinear : torch::nn::Module, MultipliesHalf, LaysOutParameters {
  /// UsageError if `out` gives a rank nothing.
  ColumnParallelLinear(TensorParallel tp, int64_t in, int64_t out,
                       ParallelLinearOptions options = {});
  /// `rows`: the outputs of this rank, ranges of a whole of `out` (a fused projection has several).
  /// `counted`: for each range, whether no lower rank has it too.
  ColumnParallelLinear(TensorParallel tp, int64_t in, int64_t out, std::vector<Part> rows,
                       std::vector<bool> counted, bool with_bias = true);

  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0) const;
  /// Without the bias, which the next layer adds.
  at::Tensor product(const at::Tensor& x, int64_t sequence = 0) const;
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor& p) const override;

  at::Tensor weight, bias;  // [this rank's outputs, in], [this rank's outputs]

 private:
  TensorParallel tp_;
  int64_t out_;
  std::vector<Part> rows_;
  std::vector<bool> counted_;
};

/// x: […, this rank's inputs]. Returns […, out], equal on all ranks; with sequence_parallel this
/// rank's positions of it. The bias, which every rank holds, is added once, to the sum. The product
/// is born in memory that peers read in place, where the group has such memory.
struct TRIREME_API RowParallelLinear : torch::nn::Module, MultipliesHalf, LaysOutParameters {
  RowParallelLinear(TensorParallel tp, int64_t in, int64_t out, ParallelLinearOptions options = {});
  at::Tensor forward(const at::Tensor& x) const;
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor& p) const override;

  at::Tensor weight, bias;  // [out, this rank's inputs], [out]

 private:
  TensorParallel tp_;
  int64_t in_;
  Part columns_;
};

/// The products of these layers with a weight that lies elsewhere (a head that is the embedding).
/// bias: […, outputs] or undefined.
TRIREME_API at::Tensor column_parallel_linear(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& bias, const TensorParallel& tp,
                                              int64_t sequence = 0,
                                              HalfProducts products = HalfProducts::native);
TRIREME_API at::Tensor row_parallel_linear(const at::Tensor& x, const at::Tensor& weight,
                                           const at::Tensor& bias, const TensorParallel& tp,
                                           HalfProducts products = HalfProducts::native);

}  // namespace trireme
