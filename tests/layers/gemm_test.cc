// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace gemm_test {

using namespace trireme;

namespace {
template <class T>
void check_all(at::ScalarType dtype) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (T beta : {T(0), T(1), T(0.5)}) {
        const int64_t m = 5, n = 7, k = 3, pad = 2;
        auto a = at::randn({ta ? k : m, (ta ? m : k) + pad}, at::dtype(dtype));
        auto b = at::randn({tb ? n : k, (tb ? k : n) + pad}, at::dtype(dtype));
        auto c = at::randn({m, n + pad}, at::dtype(dtype)), before = c.clone();
        trireme::detail::gemm<T>(ta, tb, m, n, k, T(1.5), a.template data_ptr<T>(), a.size(1),
                                 b.template data_ptr<T>(), b.size(1), beta,
                                 c.template data_ptr<T>(), c.size(1));
        auto x = a.narrow(1, 0, a.size(1) - pad), y = b.narrow(1, 0, b.size(1) - pad);
        auto expected =
            at::mm(ta ? x.t() : x, tb ? y.t() : y).mul(1.5).add(before.narrow(1, 0, n), beta);
        EXPECT_TRUE(c.narrow(1, 0, n).allclose(expected, 1e-5, 1e-5)) << ta << tb << beta;
        EXPECT_TRUE(c.narrow(1, n, pad).equal(before.narrow(1, n, pad)))
            << "what lies between rows";
      }
}
}  // namespace

TEST(layers_gemm, float32_equals_mm_in_every_form) { check_all<float>(at::kFloat); }
TEST(layers_gemm, float64_equals_mm_in_every_form) { check_all<double>(at::kDouble); }

}  // namespace gemm_test
