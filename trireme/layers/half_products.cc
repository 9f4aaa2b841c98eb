// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/half_products.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "trireme/base/clock.h"

namespace trireme {
namespace {

using torch::autograd::variable_list;

double gflops_of(at::ScalarType type, int64_t size, double seconds, bool& float32_sums) {
  const at::Tensor a = at::ones({size, size}, at::dtype(type)),
                   b = at::ones({size, size}, at::dtype(type));
  // Ones that are added up in bfloat16 come to 256 and stay there.
  float32_sums = at::mm(a, b).eq(static_cast<double>(size)).all().item<bool>() ||
                 at::zeros({}, a.options()).fill_(static_cast<double>(size)).item<double>() !=
                     static_cast<double>(size);
  const auto begin = Clock::now();
  double best = std::numeric_limits<double>::max();
  do {
    const auto start = Clock::now();
    at::mm(a, b);
    best = std::min(best, seconds_since(start));
  } while (seconds_since(begin) < seconds);
  const auto n = static_cast<double>(size);
  return 2 * n * n * n / best * 1e-9;
}

// bfloat16 factors are kept, float32 ones live as long as a product.
struct WidenedLinear : torch::autograd::Function<WidenedLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::TensorList tensors) {
    const at::Tensor &x = tensors[0], &weight = tensors[1];
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = tensors.size() == 3;
    const at::Tensor bias = tensors.size() == 3 ? tensors[2].to(at::kFloat) : at::Tensor();
    return at::linear(x.to(at::kFloat), weight.to(at::kFloat), bias).to(x.scalar_type());
  }

  static variable_list backward(torch::autograd::AutogradContext* ctx, variable_list grads) {
    const bool bias = ctx->saved_data["bias"].toBool();
    variable_list result(bias ? 3 : 2);
    if (!grads[0].defined()) return result;
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = grads[0].to(at::kFloat);
    const at::Tensor rows_of_dy = dy.reshape({-1, dy.size(-1)});
    // The two halves of a pipeline's backward (pipeline/split_backward.h) want one product each.
    if (ctx->needs_input_grad(0))
      result[0] = at::matmul(dy, weight.to(at::kFloat)).to(x.scalar_type());
    if (ctx->needs_input_grad(1))
      result[1] =
          rows_of_dy.t().mm(x.to(at::kFloat).reshape({-1, x.size(-1)})).to(weight.scalar_type());
    if (bias && ctx->needs_input_grad(2)) result[2] = rows_of_dy.sum(0).to(weight.scalar_type());
    return result;
  }
};

bool half_on_cpu(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 && t.device().is_cpu();
}

}  // namespace

ProductRates measure_product_rates(int64_t size, double seconds) {
  at::NoGradGuard no_grad;
  ProductRates rates;
  rates.float32 = gflops_of(at::kFloat, size, seconds, rates.float32_sums);
  rates.bfloat16 = gflops_of(at::kBFloat16, size, seconds, rates.float32_sums);
  return rates;
}

HalfProducts faster_products(const ProductRates& rates) {
  return rates.ratio() >= 1 && rates.float32_sums ? HalfProducts::native : HalfProducts::widened;
}

std::string describe(const ProductRates& rates) {
  return fmt::format("bfloat16 products run at {:.{}f} × float32's rate on this CPU{}",
                     rates.ratio(), rates.ratio() < 0.1 ? 3 : 1,
                     rates.float32_sums ? "" : " and round each partial sum");
}

MultipliesHalf::~MultipliesHalf() = default;

at::Tensor MultipliesHalf::linear_rows(const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& bias) const {
  const bool widen = products_ == HalfProducts::widened && half_on_cpu(x) && half_on_cpu(weight) &&
                     (!bias.defined() || half_on_cpu(bias));
  if (!widen) return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
  return bias.defined() ? WidenedLinear::apply(at::TensorList({x, weight, bias}))
                        : WidenedLinear::apply(at::TensorList({x, weight}));
}

int set_half_products(torch::nn::Module& root, HalfProducts products) {
  int set = 0;
  const auto visit = [&](torch::nn::Module& m) {
    if (auto* multiplies = dynamic_cast<MultipliesHalf*>(&m)) {
      multiplies->set_half_products(products);
      ++set;
    }
  };
  visit(root);
  for (const auto& m : root.modules(/*include_self=*/false)) visit(*m);
  return set;
}

}  // namespace trireme
