// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/bias_gelu.h"

#include "tests/layers/gradcheck.h"
#include "trireme/base/error.h"

namespace bias_gelu_test {

using namespace trireme;

TEST(layers_bias_gelu, equals_libtorchs_tanh_form) {
  at::manual_seed(3);
  for (auto dtype : {at::kFloat, at::kDouble})
    for (int64_t n : {1, 7, 16, 33, 100}) {
      auto x = at::randn({2, 5, n}, at::dtype(dtype)).mul(3), b = at::randn({n}, at::dtype(dtype));
      auto g = at::randn({2, 5, n}, at::dtype(dtype));
      auto x1 = x.clone().set_requires_grad(true), b1 = b.clone().set_requires_grad(true);
      auto x2 = x.clone().set_requires_grad(true), b2 = b.clone().set_requires_grad(true);
      auto y1 = bias_gelu(x1, b1), y2 = at::gelu(x2.add(b2), "tanh");
      y1.backward(g);
      y2.backward(g);
      const double tolerance = dtype == at::kFloat ? 3e-6 : 1e-12;
      EXPECT_TRUE(y1.allclose(y2, tolerance, tolerance)) << n;
      EXPECT_TRUE(x1.grad().allclose(x2.grad(), tolerance, tolerance)) << n;
      EXPECT_TRUE(b1.grad().allclose(b2.grad(), 5 * tolerance, 5 * tolerance)) << n;
    }
}

TEST(layers_bias_gelu, passes_a_gradient_check) {
  gradcheck([](auto& in) { return bias_gelu(in[0], in[1]); },
            {at::randn({3, 4}, at::kDouble), at::randn({4}, at::kDouble)});
}

TEST(layers_bias_gelu, extremes_are_finite_and_right) {
  auto x = at::full({64}, -1e4).set_requires_grad(true);
  auto y = bias_gelu(x, at::zeros({64}));
  y.sum().backward();
  EXPECT_TRUE(y.eq(0).all().item<bool>());
  EXPECT_TRUE(x.grad().abs().lt(1e-6).all().item<bool>());
  auto z = at::full({64}, 1e4).set_requires_grad(true);
  bias_gelu(z, at::zeros({64})).sum().backward();
  EXPECT_TRUE(z.grad().eq(1).all().item<bool>());
}

TEST(layers_bias_gelu, a_nan_is_not_hidden) {
  auto x = at::zeros({20});
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[18] = x[3];
  EXPECT_EQ(bias_gelu(x, at::zeros({20})).isnan().sum().item<int64_t>(), 2);
}

TEST(layers_bias_gelu, takes_half_types_and_refuses_wrong_shapes) {
  EXPECT_EQ(
      bias_gelu(at::zeros({2, 4}, at::kBFloat16), at::zeros({4}, at::kBFloat16)).scalar_type(),
      at::kBFloat16);
  EXPECT_THROW(bias_gelu(at::zeros({2, 4}), at::zeros({3})), UsageError);
}

}  // namespace bias_gelu_test
