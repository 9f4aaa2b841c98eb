// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/bias_gelu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/check.h"
#include "trireme/layers/kernels.h"

namespace trireme {
namespace {

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input,
                            const at::Tensor& bias) {
    auto x = input.contiguous(), b = bias.contiguous();
    auto y = at::empty_like(x);
    const int64_t columns = b.numel(), rows = columns ? x.numel() / columns : 0;
    if (x.scalar_type() == at::kFloat)
      detail::bias_gelu(x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), rows,
                        columns);
    else
      detail::bias_gelu(x.data_ptr<double>(), b.data_ptr<double>(), y.data_ptr<double>(), rows,
                        columns);
    ctx->save_for_backward({x, b});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &b = saved[1];
    auto dy = grads[0].contiguous();
    auto dx = at::empty_like(x), db = at::zeros_like(b);
    const int64_t columns = b.numel(), rows = columns ? x.numel() / columns : 0;
    if (x.scalar_type() == at::kFloat)
      detail::bias_gelu_backward(x.data_ptr<float>(), b.data_ptr<float>(), dy.data_ptr<float>(),
                                 dx.data_ptr<float>(), db.data_ptr<float>(), rows, columns);
    else
      detail::bias_gelu_backward(x.data_ptr<double>(), b.data_ptr<double>(), dy.data_ptr<double>(),
                                 dx.data_ptr<double>(), db.data_ptr<double>(), rows, columns);
    return {dx, db};
  }
};

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  check<UsageError>(bias.dim() == 1 && x.dim() >= 1 && x.size(-1) == bias.size(0),
                    "bias_gelu: the bias must be [n] for an input of […, n]");
  const bool ours = x.device().is_cpu() && x.scalar_type() == bias.scalar_type() &&
                    (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
  return ours ? BiasGelu::apply(x, bias) : at::gelu(x.add(bias), "tanh");
}

}  // namespace trireme
