// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/layers/tensor_parallel/split_plan.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"
#include "trireme/tensor/parameter_layout.h"

namespace trireme {

/// A table of embeddings of which each rank holds some of the rows; any vocabulary of at least one
/// row a rank. ids: int64 or int32, the same on all ranks. Returns […, width], equal on all ranks;
/// with sequence_parallel this rank's positions of it (ids: [batch, positions]). Every rank calls
/// it. UsageError on every rank for an id outside of [0, count); on a device, where looking would
/// wait for it, such a row is NaN. The weight is born as NaN: load or initialise it.
struct TRIREME_API VocabParallelEmbedding : torch::nn::Module, LaysOutParameters {
  VocabParallelEmbedding(TensorParallel tp, int64_t count, int64_t width);
  at::Tensor forward(const at::Tensor& ids) const;
  /// This rank's part of x · weightᵀ, for a head that is this table: x as ColumnParallelLinear
  /// takes it.
  at::Tensor logits(const at::Tensor& x, int64_t sequence = 0) const;
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor& p) const override;
  const Part& rows() const { return rows_; }

  at::Tensor weight;  // [this rank's rows, width]

 private:
  TensorParallel tp_;
  int64_t count_;
  Part rows_;
};

/// Learned positions, which every rank holds: x + weight[position]. x: [batch, positions, width];
/// with sequence_parallel this rank's positions, `sequence` being the positions of all ranks (0: as
/// many on each). `places`: what the positions of all ranks count as, [batch, sequence], if rows
/// hold several documents; undefined: 0, 1, ….
struct TRIREME_API ParallelPositions : torch::nn::Module, LaysOutParameters {
  ParallelPositions(TensorParallel tp, int64_t context, int64_t width);
  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0,
                     const at::Tensor& places = {}) const;
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor& p) const override;

  at::Tensor weight;  // [context, width]

 private:
  TensorParallel tp_;
};

}  // namespace trireme
