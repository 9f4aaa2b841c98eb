// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace trireme {

/// The gradients of sum(f(inputs) · a fixed random tensor) against central differences, float64
/// inputs.
inline void gradcheck(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& f,
                      std::vector<at::Tensor> inputs) {
  for (auto& x : inputs) x.set_requires_grad(true);
  auto y = f(inputs);
  const auto weight =
      at::linspace(-1, 1, y.numel(), y.options().requires_grad(false)).view(y.sizes());
  y.backward(weight);
  for (size_t k = 0; k < inputs.size(); ++k) {
    ASSERT_TRUE(inputs[k].grad().defined()) << "input " << k;
    auto flat = inputs[k].data().view({-1});
    auto gradient = inputs[k].grad().contiguous().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      constexpr double kStep = 1e-5;
      at::NoGradGuard no_grad;
      auto* p = flat.data_ptr<double>() + i;
      const double before = *p;
      *p = before + kStep;
      const double up = f(inputs).mul(weight).sum().item<double>();
      *p = before - kStep;
      const double down = f(inputs).mul(weight).sum().item<double>();
      *p = before;
      ASSERT_NEAR(gradient[i].item<double>(), (up - down) / (2 * kStep), 1e-7)
          << "input " << k << " element " << i;
    }
  }
}

}  // namespace trireme
