// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/mlp.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include "trireme/base/check.h"
#include "trireme/layers/bias_gelu.h"

namespace trireme {
namespace {

Part own_units(const TensorParallel& tp, int64_t hidden, int64_t granule) {
  const auto fault = fault_of_split("a block with hidden units", hidden, tp.size(), granule);
  check<UsageError>(fault.empty(), "ParallelSwiGlu: {}", fault);
  return split_evenly(hidden, tp.size(), granule)[static_cast<size_t>(tp.rank())];
}

ParallelLinearOptions linear_options(const ParallelMlpOptions& options) {
  return {.bias = options.bias, .granule = options.granule};
}

}  // namespace

ParallelGeluMlp::ParallelGeluMlp(TensorParallel tp, int64_t width, int64_t hidden,
                                 ParallelMlpOptions options)
    : up(register_module("up", std::make_shared<ColumnParallelLinear>(tp, width, hidden,
                                                                      linear_options(options)))),
      down(register_module("down", std::make_shared<RowParallelLinear>(tp, hidden, width,
                                                                       linear_options(options)))) {}

at::Tensor ParallelGeluMlp::forward(const at::Tensor& x, int64_t sequence) const {
  const at::Tensor product = up->product(x, sequence);
  // The bias rides in the GELU's pass.
  return down->forward(up->bias.defined() ? bias_gelu(product, up->bias)
                                          : at::gelu(product, "tanh"));
}

ParallelSwiGlu::ParallelSwiGlu(TensorParallel tp, int64_t width, int64_t hidden,
                               ParallelMlpOptions options) {
  const Part units = own_units(tp, hidden, options.granule);
  const std::vector<Part> rows{units, {hidden + units.begin, units.length}};
  gate_up = register_module(
      "gate_up", std::make_shared<ColumnParallelLinear>(
                     tp, width, 2 * hidden, rows, std::vector<bool>{true, true}, options.bias));
  down = register_module(
      "down", std::make_shared<RowParallelLinear>(tp, hidden, width, linear_options(options)));
}

at::Tensor ParallelSwiGlu::forward(const at::Tensor& x, int64_t sequence) const {
  const auto halves = gate_up->forward(x, sequence).chunk(2, -1);
  return down->forward(at::silu(halves[0]).mul(halves[1]));
}

}  // namespace trireme
