// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"

namespace noise_scale_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double square(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return sum;
}

/// Gradients of samples are normal around `mean`, element i with deviation sigma[i]; a part's is
/// the mean over its samples.
struct Gaussian {
  std::vector<double> mean, sigma;
  std::mt19937 draw{7};
  std::normal_distribution<double> normal;

  GradientParts step(const std::vector<int64_t>& parts) {
    GradientParts out;
    for (int64_t b : parts) out.samples += static_cast<double>(b);
    std::vector<double> whole(mean.size());
    for (int64_t b : parts) {
      if (b == 0) continue;
      const double share = static_cast<double>(b) / out.samples;
      std::vector<double> g(mean.size());
      for (size_t i = 0; i < g.size(); ++i) {
        g[i] = mean[i] + sigma[i] / std::sqrt(static_cast<double>(b)) * normal(draw);
        whole[i] += share * g[i];
      }
      out.parts += share * square(g);
      ++out.count;
    }
    out.whole = square(whole);
    return out;
  }
};

Gaussian known(double size, double noise) {
  Gaussian g;
  for (int i = 0; i < 100; ++i) {
    g.mean.push_back(size * std::sin(i + 1));
    g.sigma.push_back(noise * (1 + 0.5 * std::cos(i)));
  }
  return g;
}

}  // namespace

TEST(grad_noise_scale, finds_the_noise_of_gaussians_whatever_the_parts) {
  for (double noise : {0.5, 4.0})
    for (const std::vector<int64_t>& parts :
         {std::vector<int64_t>{8, 8}, {4, 4, 4, 4}, {1, 7}, {5, 0, 2, 9}}) {
      Gaussian g = known(1, noise);
      NoiseScale scale(0.9999);
      for (int i = 0; i < 3000; ++i) scale.add(g.step(parts));
      EXPECT_EQ(scale.steps(), 3000);
      EXPECT_NEAR(scale.trace() / square(g.sigma), 1, 0.05) << noise;
      EXPECT_NEAR(scale.signal() / square(g.mean), 1, 0.05) << noise;
      EXPECT_NEAR(scale.samples() / (square(g.sigma) / square(g.mean)), 1, 0.1) << noise;
    }
}

TEST(grad_noise_scale, equal_parts_give_the_papers_two_batch_estimate) {
  const double small = 5, whole = 2, b = 4, big = 16;
  const NoiseEstimate e = estimate_noise({small, whole, 4, big});
  EXPECT_DOUBLE_EQ(e.trace, (small - whole) / (1 / b - 1 / big));
  EXPECT_DOUBLE_EQ(e.signal, (big * whole - b * small) / (big - b));
}

TEST(grad_noise_scale, without_noise_the_scale_is_zero_and_without_signal_unknown) {
  NoiseScale same;
  same.add({3, 3, 2, 8});
  EXPECT_EQ(same.samples(), 0);
  EXPECT_EQ(same.signal(), 3);
  NoiseScale lost;
  lost.add({4, 1, 2, 8});  // |G|² = 1 - 3
  EXPECT_TRUE(std::isnan(lost.samples()));
  EXPECT_EQ(lost.trace(), 24);
}

TEST(grad_noise_scale, the_average_is_corrected_for_its_start_and_forgets) {
  NoiseScale scale(0.9);
  scale.add({3, 2, 2, 10});
  EXPECT_DOUBLE_EQ(scale.trace(), 10);
  EXPECT_DOUBLE_EQ(scale.signal(), 1);
  EXPECT_DOUBLE_EQ(scale.samples(), 10);
  for (int i = 0; i < 300; ++i) scale.add({6, 5, 2, 10});
  EXPECT_NEAR(scale.signal(), 4, 1e-9);
}

TEST(grad_noise_scale, the_scale_does_not_change_with_the_units_of_the_gradient) {
  NoiseScale one, thousand;
  for (double k : {1.0, 0.7, 1.3}) {
    one.add({3 * k, 2, 2, 10});
    thousand.add({3e6 * k, 2e6, 2, 10});
  }
  EXPECT_NEAR(one.samples(), thousand.samples(), 1e-9);
}

TEST(grad_noise_scale, steps_that_overflowed_are_left_out) {
  NoiseScale scale;
  EXPECT_TRUE(std::isnan(scale.samples()));
  scale.add({3, 2, 2, 10});
  const double before = scale.samples();
  scale.add({kInf, 2, 2, 10});
  scale.add({3, kInf - kInf, 2, 10});
  EXPECT_EQ(scale.samples(), before);
  EXPECT_EQ(scale.steps(), 1);
}

TEST(grad_noise_scale, one_part_and_decays_that_average_nothing_are_refused) {
  EXPECT_THROW(estimate_noise({1, 1, 1, 8}), UsageError);
  EXPECT_THROW(estimate_noise({1, 1, 2, 0}), UsageError);
  EXPECT_THROW(NoiseScale(1), UsageError);
  EXPECT_THROW(NoiseScale(-0.1), UsageError);
}

TEST(grad_noise_scale, the_advice_holds_the_batch_against_the_estimate) {
  NoiseScale none, lost, scale;
  EXPECT_TRUE(has(advice(none, 8), "no step"));
  lost.add({4, 1, 2, 8});
  EXPECT_TRUE(has(advice(lost, 8), "mostly noise"));
  scale.add({3, 2, 2, 10});  // 10 samples
  EXPECT_TRUE(has(advice(scale, 8), "about 10 samples") && has(advice(scale, 8), "has 8"));
  EXPECT_TRUE(has(advice(scale, 8), "after 1 steps"));
  EXPECT_TRUE(has(advice(scale, 8), "in balance"));
  EXPECT_TRUE(has(advice(scale, 2), "larger batches still save"));
  EXPECT_TRUE(has(advice(scale, 64), "a smaller batch learns as much"));
}

}  // namespace noise_scale_test
