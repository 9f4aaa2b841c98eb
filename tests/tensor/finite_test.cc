// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/finite.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

namespace finite_test {

using namespace trireme;

TEST(tensor_finite, every_place_of_every_length_is_looked_at) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (int64_t n : {1, 2, 7, 64, 4095, 4096, 4097, 9000})
      for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
        at::Tensor t = torch::full({n}, -3.5, dtype);
        EXPECT_TRUE(all_finite(t));
        for (double bad :
             {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
              -std::numeric_limits<double>::infinity()}) {
          t[at] = bad;
          EXPECT_FALSE(all_finite(t)) << at::toString(dtype) << " " << n << " " << at;
          at::Tensor to = torch::zeros({n + 2}, dtype).narrow(0, 1, n);
          EXPECT_FALSE(copy_all_finite(to, t)) << at::toString(dtype) << " " << n << " " << at;
          EXPECT_TRUE(to.isnan().equal(t.isnan()) && to.isinf().equal(t.isinf()));
        }
      }
}

TEST(tensor_finite, largest_and_smallest_numbers_are_finite) {
  EXPECT_TRUE(all_finite(torch::tensor(
      {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), 0.f, -0.f})));
  EXPECT_TRUE(all_finite(torch::full({2}, 65504, at::kHalf)));
  EXPECT_TRUE(all_finite(torch::empty({0})));
}

TEST(tensor_finite, other_layouts_too) {
  at::Tensor t = torch::ones({4, 6});
  EXPECT_TRUE(all_finite(t.t()));
  t[3][5] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(all_finite(t.t()));
  EXPECT_TRUE(all_finite(t.narrow(1, 0, 5)));
  EXPECT_TRUE(all_finite(torch::arange(4)));
}

TEST(tensor_finite, a_copy_is_a_copy_whatever_the_layout_and_dtype) {
  const at::Tensor from = torch::arange(70).reshape({7, 10}).sin();
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (bool transposed : {false, true}) {
      at::Tensor x = transposed ? from.to(dtype).t() : from.to(dtype);
      at::Tensor to = torch::zeros(x.sizes(), dtype), other = torch::zeros(x.sizes(), at::kDouble);
      EXPECT_TRUE(copy_all_finite(to, x));
      EXPECT_TRUE(to.equal(x));
      EXPECT_TRUE(copy_all_finite(other, x));
      EXPECT_TRUE(other.equal(x.to(at::kDouble)));
    }
}

TEST(tensor_finite, a_large_copy_past_the_cache_is_whole) {
  const int64_t n = (5 << 20) / 4 + 3;
  at::Tensor from = torch::arange(n).to(at::kFloat), to = torch::zeros({n + 16});
  for (int64_t offset : {0, 1}) {
    at::Tensor place = to.narrow(0, offset, n);
    EXPECT_TRUE(copy_all_finite(place, from));
    EXPECT_TRUE(place.equal(from));
  }
  from[n - 1] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(copy_all_finite(to.narrow(0, 0, n), from));
}

}  // namespace finite_test
