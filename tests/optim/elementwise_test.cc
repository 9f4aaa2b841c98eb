// SPDX-License-Identifier: Apache-2.0
// RMSprop and Adagrad against torch::optim and, as Lion, against their formulas.
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include <cmath>

#include "tests/optim/papers.h"
#include "tests/optim/twins.h"
#include "trireme/optim/optimizer.h"

namespace elementwise_test {

using namespace trireme;

TEST(optim_elementwise, rmsprop_equals_torch) {
  for (double momentum : {0.0, 0.9})
    for (bool centered : {false, true})
      for (double decay : {0.0, 0.05}) {
        Twins twins;
        auto ours = make_rmsprop(
            twins.ours,
            {.alpha = 0.9, .weight_decay = decay, .momentum = momentum, .centered = centered});
        torch::optim::RMSprop theirs(twins.theirs, torch::optim::RMSpropOptions(1e-3)
                                                       .alpha(0.9)
                                                       .weight_decay(decay)
                                                       .momentum(momentum)
                                                       .centered(centered));
        EXPECT_LT(difference_after(twins, *ours, theirs, 1e-3), 1e-6)
            << momentum << centered << decay;
      }
}

TEST(optim_elementwise, adagrad_equals_torch) {
  for (double lr_decay : {0.0, 0.1})
    for (double decay : {0.0, 0.05}) {
      Twins twins;
      auto ours = make_adagrad(
          twins.ours,
          {.lr_decay = lr_decay, .weight_decay = decay, .initial_accumulator_value = 0.1});
      torch::optim::Adagrad theirs(twins.theirs, torch::optim::AdagradOptions(1e-2)
                                                     .lr_decay(lr_decay)
                                                     .weight_decay(decay)
                                                     .initial_accumulator_value(0.1));
      EXPECT_LT(difference_after(twins, *ours, theirs, 1e-2), 1e-6) << lr_decay << decay;
    }
}

TEST(optim_elementwise, rmsprop_and_adagrad_take_groups_and_float64) {
  expect_paper(rmsprop(), [](Reference& r) {
    auto &v = r.of("v"), &mean = r.of("mean"), &b = r.of("b");
    for (size_t i = 0; i < r.w.size(); ++i) {
      const double g = r.g[i] + r.decay * r.w[i];
      v[i] = 0.99 * v[i] + 0.01 * g * g;
      mean[i] = 0.99 * mean[i] + 0.01 * g;
      b[i] = 0.9 * b[i] + g / (std::sqrt(v[i] - mean[i] * mean[i]) + 1e-8);
      r.w[i] -= r.lr * b[i];
    }
  });
  expect_paper(adagrad(), [](Reference& r) {
    auto& sum = r.of("sum");
    for (size_t i = 0; i < r.w.size(); ++i) {
      const double g = r.g[i] + r.decay * r.w[i];
      sum[i] += g * g;
      r.w[i] -= r.lr / (1 + (r.t - 1) * 0.01) * g / (std::sqrt(sum[i]) + 1e-10);
    }
  });
}

// The loop of the authors' own code (github.com/lancopku/AdaMod), in float64.
TEST(optim_elementwise, adamod_is_the_papers) {
  int bounded = 0, free = 0;
  expect_paper(adamod(), [&](Reference& r) {
    auto &m = r.of("m"), &v = r.of("v"), &s = r.of("s");
    for (size_t i = 0; i < r.w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * r.g[i];
      v[i] = 0.999 * v[i] + 0.001 * r.g[i] * r.g[i];
      const double corrected =
          r.lr * std::sqrt(1 - std::pow(0.999, r.t)) / (1 - std::pow(0.9, r.t));
      r.w[i] -= r.decay * r.lr * r.w[i];
      const double rate = corrected / (std::sqrt(v[i]) + 1e-8);
      s[i] = 0.9 * s[i] + 0.1 * rate;
      (s[i] < rate ? bounded : free) += 1;
      r.w[i] -= std::min(rate, s[i]) * m[i];
    }
  });
  EXPECT_GT(bounded, 100) << "the bound holds at first";
  EXPECT_GT(free, 100) << "and later does not everywhere";
}

TEST(optim_elementwise, lion_is_the_papers) {
  expect_paper(lion(), [](Reference& r) {
    auto& m = r.of("m");
    for (size_t i = 0; i < r.w.size(); ++i) {
      const double c = 0.9 * m[i] + 0.1 * r.g[i];
      r.w[i] -= r.lr * ((c > 0) - (c < 0) + r.decay * r.w[i]);
      m[i] = 0.99 * m[i] + 0.01 * r.g[i];
    }
  });
}

}  // namespace elementwise_test
