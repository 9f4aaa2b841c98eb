// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/half_layer_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace trireme {
namespace {

using torch::autograd::variable_list;

/// What is widened at a time: beside the float32 rows that come of it, in a core's second cache.
constexpr int64_t kNormElements = 1 << 16;

/// f(first row, rows) for each piece.
template <class F>
void row_pieces(int64_t rows, int64_t columns, F f) {
  const int64_t most = std::max<int64_t>(1, kNormElements / std::max<int64_t>(1, columns));
  for (int64_t r = 0; r < rows; r += most) f(r, std::min(most, rows - r));
}

struct HalfLayerNorm : torch::autograd::Function<HalfLayerNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
    const int64_t columns = weight.numel();
    const at::Tensor x = input.contiguous(), rows_of_x = x.view({-1, columns});
    const at::Tensor w = weight.to(at::kFloat), b = bias.to(at::kFloat);
    const int64_t rows = rows_of_x.size(0);
    at::Tensor y = at::empty_like(x), rows_of_y = y.view({-1, columns});
    at::Tensor mean = at::empty({rows, 1}, w.options()), deviation = at::empty_like(mean);
    row_pieces(rows, columns, [&](int64_t first, int64_t n) {
      const auto [out, m, d] = at::native_layer_norm(rows_of_x.narrow(0, first, n).to(at::kFloat),
                                                     {columns}, w, b, epsilon);
      rows_of_y.narrow(0, first, n).copy_(out);
      mean.narrow(0, first, n).copy_(m);
      deviation.narrow(0, first, n).copy_(d);
    });
    ctx->save_for_backward({x, weight, bias, mean, deviation});
    return y;
  }

  static variable_list backward(torch::autograd::AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(4);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const int64_t columns = weight.numel();
    const at::Tensor dy = grads[0].contiguous().view({-1, columns}),
                     rows_of_x = x.view({-1, columns});
    const at::Tensor w = weight.to(at::kFloat), b = bias.to(at::kFloat);
    at::Tensor dx = at::empty_like(x), rows_of_dx = dx.view({-1, columns});
    at::Tensor dw = at::zeros({columns}, w.options()), db = at::zeros({columns}, w.options());
    row_pieces(dy.size(0), columns, [&](int64_t first, int64_t n) {
      const auto [in, gain, shift] = at::native_layer_norm_backward(
          dy.narrow(0, first, n).to(at::kFloat), rows_of_x.narrow(0, first, n).to(at::kFloat),
          {columns}, saved[3].narrow(0, first, n), saved[4].narrow(0, first, n), w, b,
          {true, true, true});
      rows_of_dx.narrow(0, first, n).copy_(in);
      dw.add_(gain);
      db.add_(shift);
    });
    return {dx, dw.to(weight.scalar_type()), db.to(bias.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double epsilon) {
  const bool ours = x.scalar_type() == at::kBFloat16 && x.device().is_cpu() && x.numel() > 0 &&
                    weight.defined() && bias.defined() && weight.dim() == 1 &&
                    x.size(-1) == weight.numel();
  if (!ours) return at::layer_norm(x, weight.sizes(), weight, bias, epsilon);
  return HalfLayerNorm::apply(x, weight, bias, epsilon);
}

}  // namespace trireme
