// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/linear.h"

#include <ATen/ops/full.h>

#include <limits>

#include "trireme/base/check.h"

namespace trireme {
namespace {

at::Tensor unset(at::IntArrayRef sizes) {
  return at::full(sizes, std::numeric_limits<float>::quiet_NaN(), at::dtype(at::kFloat));
}

std::vector<Part> own_rows(const TensorParallel& tp, int64_t out, int64_t granule) {
  const auto fault = fault_of_split("a linear layer with outputs", out, tp.size(), granule);
  check<UsageError>(fault.empty(), "ColumnParallelLinear: {}", fault);
  return {split_evenly(out, tp.size(), granule)[static_cast<size_t>(tp.rank())]};
}

Part own_columns(const TensorParallel& tp, int64_t in, int64_t granule) {
  const auto fault = fault_of_split("a linear layer with inputs", in, tp.size(), granule);
  check<UsageError>(fault.empty(), "RowParallelLinear: {}", fault);
  return split_evenly(in, tp.size(), granule)[static_cast<size_t>(tp.rank())];
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(TensorParallel tp, int64_t in, int64_t out,
                                           ParallelLinearOptions options)
    : ColumnParallelLinear(tp, in, out, own_rows(tp, out, options.granule), {true}, options.bias) {}

ColumnParallelLinear::ColumnParallelLinear(TensorParallel tp, int64_t in, int64_t out,
                                           std::vector<Part> rows, std::vector<bool> counted,
                                           bool with_bias)
    : tp_(std::move(tp)), out_(out), rows_(std::move(rows)), counted_(std::move(counted)) {
  check<UsageError>(counted_.size() == rows_.size(),
                    "ColumnParallelLinear: {} ranges of outputs, and for {} it is said whether "
                    "they are counted",
                    rows_.size(), counted_.size());
  int64_t outputs = 0;
  for (const Part& part : rows_) outputs += part.length;
  weight = register_parameter("weight", unset({outputs, in}));
  if (with_bias) bias = register_parameter("bias", unset({outputs}));
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& x, int64_t sequence) const {
  return column_parallel_linear(x, weight, bias, tp_, sequence, half_products());
}
at::Tensor ColumnParallelLinear::product(const at::Tensor& x, int64_t sequence) const {
  return column_parallel_linear(x, weight, {}, tp_, sequence, half_products());
}

std::optional<ParameterLayout> ColumnParallelLinear::layout_of(const std::string& name,
                                                               const at::Tensor& p) const {
  if (name != "weight" && name != "bias") return std::nullopt;
  ParameterLayout layout{p.sizes().vec(), {}, {{tp_.axis(), OnAxis::split}}};
  layout.shape[0] = out_;
  for (size_t i = 0; i < rows_.size(); ++i) {
    Box box = Box::whole(p.sizes().vec());
    box.offsets[0] = rows_[i].begin;
    box.lengths[0] = rows_[i].length;
    box.counted = counted_[i];
    layout.boxes.push_back(std::move(box));
  }
  return layout;
}

RowParallelLinear::RowParallelLinear(TensorParallel tp, int64_t in, int64_t out,
                                     ParallelLinearOptions options)
    : tp_(std::move(tp)), in_(in), columns_(own_columns(tp_, in, options.granule)) {
  weight = register_parameter("weight", unset({out, columns_.length}));
  if (options.bias) bias = register_parameter("bias", unset({out}));
}

at::Tensor RowParallelLinear::forward(const at::Tensor& x) const {
  return row_parallel_linear(x, weight, bias, tp_, half_products());
}

std::optional<ParameterLayout> RowParallelLinear::layout_of(const std::string& name,
                                                            const at::Tensor& p) const {
  if (name == "bias") return tp_.replicated(p);
  if (name != "weight") return std::nullopt;
  const int64_t out = p.size(0);
  return ParameterLayout{
      {out, in_}, {{{0, columns_.begin}, {out, columns_.length}}}, {{tp_.axis(), OnAxis::split}}};
}

}  // namespace trireme
