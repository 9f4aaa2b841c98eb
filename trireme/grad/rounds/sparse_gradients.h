// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/rounds/round_decorator.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// UsageError for the first of the parameters that is on a device of which LibTorch has no sparse
/// tensors (those of a library, in LibTorch 1.13), since backward() would fail on it.
TRIREME_API void refuse_sparse(const NamedTensors& parameters);

/// Adds parameters with sparse gradients (Embedding with sparse(true)) behind another round's. When
/// the round closes, each rank's rows (indices and values, as many as it has) are gathered, and
/// p.grad() becomes their coalesced sum, or mean: the same on every rank, whose rows are ordered by
/// index. Bytes on the wire: rows, not the table.
///
/// A gradient that is dense on some rank is a UsageError on all ranks. A parameter that no rank
/// used keeps what it had.
class TRIREME_API SparseGradients final : public RoundDecorator<GradientRound> {
 public:
  /// inner must outlive this. op: sum or avg.
  SparseGradients(GradientRound& inner, NamedTensors sparse, Group group, ReduceOp op);

  size_t size() const override { return inner_.size() + sparse_.size(); }
  const at::Tensor& parameter(size_t i) const override;
  const std::string& name(size_t i) const override;
  void open() override;
  GradientPlace offer(size_t i) override {
    return i < inner_.size() ? inner_.offer(i) : GradientPlace{};
  }
  void ready(size_t i) override;
  void accumulated_outside(size_t i) override;
  void close() override;

  /// Ranks that used sparse parameter k in the last round.
  int used_by(size_t k) const { return used_by_[k]; }
  const NamedTensors& parameters() const { return sparse_; }
  /// Multiplies the gradients that the last round made.
  void scale(double factor);

 private:
  void reduce(size_t k, const std::vector<double>& rows);

  NamedTensors sparse_;
  Group group_;
  ReduceOp op_;
  std::vector<bool> used_, outside_;
  std::vector<int> used_by_;
};

}  // namespace trireme
