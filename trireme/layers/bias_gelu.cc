// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/bias_gelu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/layers/bias_gelu_aten.h"
#include "trireme/layers/bias_gelu_kernels.h"
#include "trireme/tensor/half_cast.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

// A backward in two halves (pipeline/split_backward.h) asks for the input's gradient first, and for
// the bias's later, of the same gradient: the first pass has both.
struct LaterHalf {
  static void keep(torch::autograd::AutogradContext* ctx, const at::Tensor& bias,
                   const at::Tensor& dy, const at::Tensor& db) {
    if (!bias.requires_grad() || !ctx->needs_input_grad(0) || ctx->needs_input_grad(1)) return;
    ctx->saved_data["later_dy"] = dy;
    ctx->saved_data["later_db"] = db;
  }
  /// Undefined where it was not kept.
  static at::Tensor take(torch::autograd::AutogradContext* ctx, const at::Tensor& dy) {
    if (ctx->needs_input_grad(0) || !ctx->needs_input_grad(1)) return {};
    const auto of = ctx->saved_data.find("later_dy");
    if (of == ctx->saved_data.end() || !of->second.toTensor().is_same(dy)) return {};
    at::Tensor db = ctx->saved_data.at("later_db").toTensor();
    ctx->saved_data.clear();
    return db;
  }
};

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input,
                            const at::Tensor& bias) {
    auto x = input.contiguous(), b = bias.contiguous();
    auto y = at::empty_like(x);
    const int64_t columns = b.numel(), rows = columns ? x.numel() / columns : 0;
    if (x.scalar_type() == at::kFloat)
      detail::bias_gelu(host_data<float>(x), host_data<float>(b), host_data<float>(y), rows,
                        columns);
    else
      detail::bias_gelu(host_data<double>(x), host_data<double>(b), host_data<double>(y), rows,
                        columns);
    ctx->save_for_backward({x, b});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    if (at::Tensor db = LaterHalf::take(ctx, grads[0]); db.defined()) return {at::Tensor(), db};
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &b = saved[1];
    auto dy = grads[0].contiguous();
    auto dx = at::empty_like(x), db = at::zeros_like(b);
    const int64_t columns = b.numel(), rows = columns ? x.numel() / columns : 0;
    if (x.scalar_type() == at::kFloat)
      detail::bias_gelu_backward(host_data<float>(x), host_data<float>(b), host_data<float>(dy),
                                 host_data<float>(dx), host_data<float>(db), rows, columns);
    else
      detail::bias_gelu_backward(host_data<double>(x), host_data<double>(b), host_data<double>(dy),
                                 host_data<double>(dx), host_data<double>(db), rows, columns);
    LaterHalf::keep(ctx, b, grads[0], db);
    return {dx, db};
  }
};

// bfloat16 in, bfloat16 out, float32 between, some rows at a time; the bias may be either, as
// autocast has it. (LibTorch 1.13's own bfloat16 GELU takes ten times as long.)
struct HalfBiasGelu : torch::autograd::Function<HalfBiasGelu> {
  static constexpr int64_t kElements = 4096;  // of a piece, in the nearest cache

  static const uint16_t* bits(const at::Tensor& t) { return host_bits<const uint16_t>(t); }

  /// f(first element, rows) for each piece.
  template <class F>
  static void pieces(int64_t rows, int64_t columns, F f) {
    const int64_t most = std::max<int64_t>(1, kElements / std::max<int64_t>(1, columns));
    for (int64_t r = 0; r < rows; r += most) f(r * columns, std::min(most, rows - r));
  }

  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input,
                            const at::Tensor& bias) {
    const auto x = input.contiguous(), b = bias.to(at::kFloat).contiguous();
    auto y = at::empty_like(x);
    const int64_t columns = b.numel(), rows = columns ? x.numel() / columns : 0;
    std::vector<float> wide(static_cast<size_t>(std::max(kElements, columns)));
    pieces(rows, columns, [&](int64_t at, int64_t n) {
      widen_bfloat16(bits(x) + at, wide.data(), n * columns);
      detail::bias_gelu(wide.data(), host_data<float>(b), wide.data(), n, columns);
      round_to_bfloat16(wide.data(), host_bits<uint16_t>(y) + at, n * columns);
    });
    ctx->save_for_backward({x, bias});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    if (at::Tensor db = LaterHalf::take(ctx, grads[0]); db.defined()) return {at::Tensor(), db};
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &bias = saved[1];
    const auto dy = grads[0].contiguous(), b = bias.to(at::kFloat).contiguous();
    auto dx = at::empty_like(x), db = at::zeros_like(b);
    const int64_t columns = b.numel(), rows = columns ? x.numel() / columns : 0;
    std::vector<float> in(static_cast<size_t>(std::max(kElements, columns))), up(in.size()),
        down(in.size());
    pieces(rows, columns, [&](int64_t at, int64_t n) {
      widen_bfloat16(bits(x) + at, in.data(), n * columns);
      widen_bfloat16(bits(dy) + at, up.data(), n * columns);
      detail::bias_gelu_backward(in.data(), host_data<float>(b), up.data(), down.data(),
                                 host_data<float>(db), n, columns);
      round_to_bfloat16(down.data(), host_bits<uint16_t>(dx) + at, n * columns);
    });
    db = db.to(bias.scalar_type());
    LaterHalf::keep(ctx, bias, grads[0], db);
    return {dx, db};
  }
};

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  check<UsageError>(bias.dim() == 1 && x.dim() >= 1 && x.size(-1) == bias.size(0),
                    "bias_gelu: the bias must be [n] for an input of […, n]");
  const bool ours = x.device().is_cpu() && x.scalar_type() == bias.scalar_type() &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
  const bool half = x.device().is_cpu() && x.scalar_type() == at::kBFloat16 &&
                    (bias.scalar_type() == at::kBFloat16 || bias.scalar_type() == at::kFloat);
  if (half) return HalfBiasGelu::apply(x, bias);
  return ours ? BiasGelu::apply(x, bias) : detail::bias_gelu_aten(x, bias);
}

}  // namespace trireme
