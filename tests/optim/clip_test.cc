// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/clip.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/optim/norm_kernels.h"

namespace clip_test {

using namespace trireme;

namespace {

NamedTensors with_gradients(std::vector<std::vector<int64_t>> shapes,
                            at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(11);
  NamedTensors all;
  for (size_t i = 0; i < shapes.size(); ++i) {
    auto p = torch::zeros(shapes[i], dtype).requires_grad_();
    p.mutable_grad() = torch::randn(shapes[i]).to(dtype);
    all.emplace_back("p" + std::to_string(i), p);
  }
  return all;
}

}  // namespace

TEST(optim_clip, norm_and_coefficient_equal_torch) {
  for (auto dtype : {at::kFloat, at::kDouble}) {
    auto all = with_gradients({{100, 37}, {1}, {2048}, {0}, {1025}}, dtype);
    auto ours = grad_norm(all, 1.5);
    std::vector<torch::Tensor> copies;
    for (auto& [name, p] : all) {
      copies.push_back(torch::zeros_like(p).requires_grad_());
      copies.back().mutable_grad() = p.grad().clone();
    }
    double theirs = torch::nn::utils::clip_grad_norm_(copies, 1.5);
    EXPECT_TRUE(ours.finite);
    EXPECT_NEAR(ours.norm / theirs, 1, 1e-6);
    EXPECT_TRUE((all[0].second.grad() * ours.coefficient).allclose(copies[0].grad(), 1e-5, 1e-8));
  }
}

TEST(optim_clip, a_small_norm_is_not_scaled_up_and_zero_turns_clipping_off) {
  auto all = with_gradients({{10}});
  EXPECT_EQ(grad_norm(all, 1e9).coefficient, 1);
  EXPECT_EQ(grad_norm(all, 0).coefficient, 1);
  EXPECT_LT(grad_norm(all, 0.1).coefficient, 1);
  EXPECT_THROW(grad_norm(all, -1), UsageError);
}

TEST(optim_clip, the_norm_is_that_of_the_scaled_gradients) {
  auto all = with_gradients({{300}});
  EXPECT_DOUBLE_EQ(grad_norm(all, 0, 0.25).norm, grad_norm(all).norm * 0.25);
}

TEST(optim_clip, sums_have_the_same_bits_on_every_simd_target) {
  auto x = torch::randn({5000});
  std::vector<double> want(5), got(5);
  // The definition, as a plain loop.
  for (int64_t block = 0; block < 5; ++block) {
    double partial[16] = {};
    for (int64_t i = block * 1024; i < std::min<int64_t>(5000, block * 1024 + 1024); ++i) {
      double v = x.data_ptr<float>()[i];
      partial[i % 16] += v * v;
    }
    for (int width = 8; width; width /= 2)
      for (int j = 0; j < width; ++j) partial[j] += partial[j + width];
    want[static_cast<size_t>(block)] = partial[0];
  }
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    block_square_sums(x.data_ptr<float>(), 5000, got.data());
    EXPECT_EQ(got, want) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(optim_clip, a_missing_gradient_counts_as_zeros) {
  auto all = with_gradients({{3000}, {70}, {1500}});
  auto zeros = with_gradients({{3000}, {70}, {1500}});
  all[1].second.mutable_grad() = at::Tensor();
  zeros[1].second.mutable_grad().zero_();
  EXPECT_EQ(grad_norm(all).norm, grad_norm(zeros).norm);
}

TEST(optim_clip, the_tree_splits_at_the_largest_power_of_two_below_n) {
  std::vector<double> v{1e16, 1, -1e16, 1, 1e-3};
  EXPECT_EQ(tree_sum(v.data(), 0), 0);
  EXPECT_EQ(tree_sum(v.data(), 1), 1e16);
  EXPECT_EQ(tree_sum(v.data(), 3), (v[0] + v[1]) + v[2]);
  EXPECT_EQ(tree_sum(v.data(), 5), ((v[0] + v[1]) + (v[2] + v[3])) + v[4]);
}

TEST(optim_clip, what_is_not_finite_is_found_and_named) {
  for (double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      auto all = with_gradients({{10}, {3000}, {20}}, dtype);
      EXPECT_EQ(first_non_finite(all), "");
      all[1].second.grad()[2999] = bad;
      all[2].second.grad()[0] = bad;
      auto verdict = grad_norm(all, 1.0);
      EXPECT_FALSE(verdict.finite);
      EXPECT_EQ(verdict.coefficient, 1);
      EXPECT_EQ(first_non_finite(all), "p1");
    }
}

TEST(optim_clip, float64_gradients_whose_squares_overflow_are_still_finite) {
  auto all = with_gradients({{4}}, at::kDouble);
  all[0].second.grad().fill_(1e200);
  EXPECT_TRUE(grad_norm(all).finite);
  EXPECT_EQ(grad_norm(all, 1.0).coefficient, 0);
}

TEST(optim_clip, clip_grad_norm_equals_torchs_for_every_norm) {
  for (auto dtype : {at::kFloat, at::kDouble})
    for (double p : {2.0, 1.0, 3.0, 0.5, std::numeric_limits<double>::infinity()})
      for (double max_norm : {0.1, 7.0, 1e9}) {
        auto all = with_gradients({{100, 37}, {1}, {2048}, {1025}}, dtype);
        std::vector<torch::Tensor> list, copies;
        for (auto& [name, t] : all) {
          list.push_back(t);
          copies.push_back(torch::zeros_like(t).requires_grad_());
          copies.back().mutable_grad() = t.grad().clone();
        }
        list.push_back(list[0]);  // listed twice, clipped once
        const double theirs = torch::nn::utils::clip_grad_norm_(copies, max_norm, p);
        const double ours = clip_grad_norm_(list, max_norm, p);
        EXPECT_NEAR(ours / theirs, 1, dtype == at::kFloat ? 2e-5 : 1e-11) << p;
        for (size_t i = 0; i < copies.size(); ++i)
          EXPECT_TRUE(list[i].grad().allclose(copies[i].grad(), 5e-5, 1e-8))
              << p << ' ' << max_norm;
      }
}

TEST(optim_clip, clip_grad_value_equals_torchs) {
  auto all = with_gradients({{100, 37}, {5}, {0}});
  all.emplace_back("none", torch::zeros({3}).requires_grad_());
  std::vector<torch::Tensor> copies;
  for (auto& [name, t] : all) {
    copies.push_back(torch::zeros_like(t).requires_grad_());
    if (t.grad().defined()) copies.back().mutable_grad() = t.grad().clone();
  }
  torch::nn::utils::clip_grad_value_(copies, 0.3);
  clip_grad_value_(all, 0.3);
  EXPECT_GT(all[0].second.grad().abs().eq(0.3f).sum().item<int64_t>(), 1000);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(all[i].second.grad().equal(copies[i].grad()));
  EXPECT_FALSE(all[3].second.grad().defined());
  EXPECT_THROW(clip_grad_value_(all, -1), UsageError);
}

TEST(optim_clip, a_norm_that_is_not_finite_is_torchs_nan_or_an_error_that_names_the_parameter) {
  for (double p : {2.0, 1.0, std::numeric_limits<double>::infinity()})
    for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      auto all = with_gradients({{10}, {2000}});
      all[1].second.mutable_grad()[1500] = bad;
      const auto before = all[0].second.grad().clone();
      try {
        clip_grad_norm_(all, 1, p, true);
        ADD_FAILURE() << p;
      } catch (const NumericError& e) {
        EXPECT_NE(std::string(e.what()).find("'p1'"), std::string::npos) << e.what();
      }
      EXPECT_TRUE(all[0].second.grad().equal(before));
      EXPECT_FALSE(std::isfinite(clip_grad_norm_(all, 1, p)));
      EXPECT_TRUE(all[1].second.grad()[1500].isnan().item<bool>());
    }
  auto all = with_gradients({{10}});
  EXPECT_THROW(clip_grad_norm_(all, -1), UsageError);
  EXPECT_THROW(clip_grad_norm_(all, 1, 0), UsageError);
}

TEST(optim_clip, complex_gradients_count_by_their_absolute_values) {
  auto z = torch::zeros({5}, at::kComplexDouble).requires_grad_();
  z.mutable_grad() = torch::randn({5}, at::kComplexDouble);
  const double norm = torch::view_as_real(z.grad()).norm().item<double>();
  const auto before = z.grad().clone();
  EXPECT_NEAR(clip_grad_norm_({{"z", z}}, norm / 2), norm, 1e-6 * norm);
  EXPECT_TRUE(z.grad().allclose(before / 2, 1e-5));
}

}  // namespace clip_test
