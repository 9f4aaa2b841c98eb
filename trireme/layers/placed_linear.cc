// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/placed_linear.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trireme/layers/gemm.h"
#include "trireme/tensor/autocast_compat.h"
#include "trireme/tensor/finite_kernels.h"
#include "trireme/tensor/gradient_place.h"
#include "trireme/tensor/host_data.h"

namespace trireme::detail {
namespace {

using torch::autograd::variable_list;

// dw[out, in] = dyᵀ·x, in panels of rows that stay in a core's cache while BLAS clears them, adds
// to them, and they are looked at: with few samples this is bound by memory, and a whole weight
// would pass through it three times. The last panel is the longest, never a short one: BLAS may
// compute small ones in another way. Returns whether all of dw is finite.
bool weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& dw) {
  const int64_t rows = dw.size(0), columns = dw.size(1), batch = x.size(0);
  constexpr int64_t kElements = 1 << 18, kFewest = 16;
  int64_t panel = std::max(kElements / std::max<int64_t>(columns, 1), kFewest);
  if (at::get_num_threads() > 1) panel = rows;  // threads share a whole one better
  auto* out = host_data<float>(dw);
  bool finite = true;
  for (int64_t row = 0; row < rows;) {
    const int64_t n = rows - row < 2 * panel ? rows - row : panel;
    gemm<float>(true, false, n, columns, batch, 1, host_data<float>(dy) + row, rows,
                host_data<float>(x), columns, 0, out + row * columns, columns);
    finite &= finite_bits32(reinterpret_cast<const int32_t*>(out + row * columns), nullptr,
                            static_cast<size_t>(n * columns));
    row += n;
  }
  return finite;
}

struct PlacedLinear : torch::autograd::Function<PlacedLinear> {
  // x, weight, and bias where there is one.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::TensorList tensors) {
    const at::Tensor &x = tensors[0], &weight = tensors[1];
    ctx->save_for_backward({x, weight});
    ctx->saved_data["wants_x"] = x.requires_grad();
    if (tensors.size() == 2) return at::linear(x, weight);
    ctx->saved_data["wants_bias"] = tensors[2].requires_grad();
    return at::linear(x, weight, tensors[2]);
  }

  static variable_list backward(torch::autograd::AutogradContext* ctx, variable_list grads) {
    const auto bias = ctx->saved_data.find("wants_bias");
    variable_list result(bias == ctx->saved_data.end() ? 2 : 3);
    if (!grads[0].defined()) return result;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], dy = rows_of(grads[0]);
    // The two halves of a pipeline's backward (pipeline/split_backward.h) want one product each.
    if (ctx->saved_data["wants_x"].toBool() && ctx->needs_input_grad(0))
      result[0] = x.dim() == 2 ? dy.mm(weight) : dy.mm(weight).view(x.sizes());
    if (ctx->needs_input_grad(1)) result[1] = of_weight(dy, x, weight);
    if (result.size() == 3 && bias->second.toBool() && ctx->needs_input_grad(2))
      result[2] = dy.sum(0);
    return result;
  }

  static at::Tensor of_weight(const at::Tensor& dy, const at::Tensor& input,
                              const at::Tensor& weight) {
    const at::Tensor x = rows_of(input);
    if (c10::GradMode::is_enabled()) return dy.t().mm(x);  // create_graph
    GradientPlace place = take_gradient_place(weight);
    if (!place.memory.defined()) return dy.t().mm(x);
    if (weight.scalar_type() == at::kFloat && input.dim() == 2) {
      const bool finite = weight_gradient(dy.contiguous(), x, place.memory);
      if (place.finite) *place.finite = finite;
    } else {
      at::mm_out(place.memory, dy.t(), x);
    }
    return std::move(place.memory);
  }

  /// [rows, features]: all dims but the last are of samples.
  static at::Tensor rows_of(const at::Tensor& t) {
    return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)});
  }
};

bool plain(const at::Tensor& t, at::ScalarType dtype) {
  return t.scalar_type() == dtype && t.device().is_cpu() && t.layout() == at::kStrided &&
         t.is_contiguous() && t.numel() > 0;
}

}  // namespace

bool takes_place(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::ScalarType dtype = weight.scalar_type();
  return c10::GradMode::is_enabled() && weight.requires_grad() && at::isFloatingType(dtype) &&
         plain(weight, dtype) && weight.dim() == 2 && plain(x, dtype) && x.dim() >= 2 &&
         x.size(-1) == weight.size(1) &&
         (!bias.defined() || (bias.scalar_type() == dtype && bias.device().is_cpu())) &&
         !compat::autocast_of(at::kCPU).enabled && has_gradient_place(weight);
}

at::Tensor placed_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? PlacedLinear::apply(at::TensorList({x, weight, bias}))
                        : PlacedLinear::apply(at::TensorList({x, weight}));
}

}  // namespace trireme::detail
