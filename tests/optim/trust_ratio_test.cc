// SPDX-License-Identifier: Apache-2.0
// LARS and LAMB, which measure a parameter before they move it.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "tests/optim/papers.h"
#include "trireme/optim/optimizer.h"

namespace trust_ratio_test {

using namespace trireme;

TEST(optim_trust_ratio, lars_is_the_papers) {
  for (double momentum : {0.0, 0.9})
    expect_paper(
        [&](const NamedTensors& p) {
          return make_lars(p, {.momentum = momentum, .weight_decay = kDecay, .eps = 0}, kGroups);
        },
        [&](Reference& r) {
          auto& m = r.of("m");
          const bool adapts = r.name != "a.bias" && r.name != "norm.weight";
          const double local = adapts ? 0.001 * norm(r.w) / (norm(r.g) + r.decay * norm(r.w)) : 1;
          for (size_t i = 0; i < r.w.size(); ++i) {
            m[i] = momentum * m[i] + r.lr * local * (r.g[i] + r.decay * r.w[i]);
            r.w[i] -= m[i];
          }
        });
}

TEST(optim_trust_ratio, lamb_is_the_papers) {
  expect_paper(lamb(), [](Reference& r) {
    auto &m = r.of("m"), &v = r.of("v");
    std::vector<double> u(r.w.size());
    for (size_t i = 0; i < r.w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * r.g[i];
      v[i] = 0.999 * v[i] + 0.001 * r.g[i] * r.g[i];
      const double m_hat = m[i] / (1 - std::pow(0.9, r.t)),
                   v_hat = v[i] / (1 - std::pow(0.999, r.t));
      u[i] = m_hat / (std::sqrt(v_hat) + 1e-8) + r.decay * r.w[i];
    }
    const double ratio = r.name == "a.bias" ? 1 : std::clamp(norm(r.w) / norm(u), 0.01, 10.0);
    for (size_t i = 0; i < r.w.size(); ++i) r.w[i] -= r.lr * ratio * u[i];
  });
}

TEST(optim_trust_ratio, a_layer_of_zeros_and_one_without_gradients_can_still_move) {
  for (const auto& make : {Make([](const NamedTensors& p) { return make_lars(p); }),
                           Make([](const NamedTensors& p) { return make_lamb(p); })}) {
    auto w = torch::zeros({4}).requires_grad_(), still = torch::ones({4}).requires_grad_();
    auto optimizer = make({{"w", w}, {"still", still}});
    w.mutable_grad() = torch::ones({4});
    still.mutable_grad() = torch::zeros({4});
    optimizer->step(0.1);
    EXPECT_LT(w.max().item<float>(), -0.05);
    EXPECT_TRUE(still.equal(torch::ones({4})));
  }
}

TEST(optim_trust_ratio, lambs_ratio_stays_between_its_coefficients) {
  for (auto [weight, ratio] : {std::pair(1e-6, 0.01), std::pair(1e3, 10.0)}) {
    auto w = torch::full({4}, weight, torch::kDouble).requires_grad_();
    auto optimizer = make_lamb({{"w", w}});
    w.mutable_grad() = torch::ones({4}, torch::kDouble);
    optimizer->step(0.1);  // the first step's u is 1
    EXPECT_NEAR(w[0].item<double>(), weight - 0.1 * ratio, 1e-6);
  }
}

}  // namespace trust_ratio_test
