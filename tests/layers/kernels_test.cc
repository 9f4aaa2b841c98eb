// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <functional>
#include <vector>

#include "trireme/layers/attention_exp_kernels.h"
#include "trireme/layers/bias_gelu_kernels.h"

namespace kernels_test {

namespace {

using trireme::detail::bias_gelu;
using trireme::detail::bias_gelu_backward;
using trireme::detail::causal_exp;
using trireme::detail::causal_exp_backward;

// Runs f with each instruction set that this machine has.
void on_each_target(const std::function<void()>& f) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t target = 1; target > 0; target <<= 1) {
    if (!(all & target)) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <class T>
std::vector<T> wave(size_t n, double step) {
  std::vector<T> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<T>(3 * std::sin(static_cast<double>(i) * step));
  return v;
}

template <class A, class B>
void near(const A& a, const B& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << i;
}

}  // namespace

TEST(layers_kernels, causal_exp_equals_float64_on_every_target) {
  on_each_target([] {
    for (int64_t columns : {1, 5, 16, 40, 64}) {
      const int64_t rows = std::min<int64_t>(columns, 10), ld = 64, first = columns - rows + 1;
      auto s = wave<float>(static_cast<size_t>(rows * ld), 0.7), d = wave<float>(s.size(), 0.3);
      auto s64 = wave<double>(s.size(), 0.7), d64 = wave<double>(s.size(), 0.3);
      const auto again = s, again_d = d;
      std::vector<float> sums(10), logs(10), delta(10, 0.5f);
      std::vector<double> sums64(10), logs64(10), delta64(10, 0.5);
      causal_exp(s.data(), rows, columns, ld, first, sums.data(), logs.data());
      causal_exp(s64.data(), rows, columns, ld, first, sums64.data(), logs64.data());
      near(sums, sums64, 1e-5);
      near(logs, logs64, 1e-5);
      auto p = again, dp = again_d;
      causal_exp_backward(p.data(), dp.data(), rows, columns, ld, first, logs.data(), delta.data());
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
          const auto i = static_cast<size_t>(r * ld + c), row = static_cast<size_t>(r);
          const bool seen = c < first + r;
          ASSERT_NEAR(s[i], s64[i], 1e-5);
          ASSERT_EQ(seen, s[i] > 0);
          ASSERT_NEAR(p[i], s64[i] / sums64[row], 1e-5);
          ASSERT_NEAR(dp[i], p[i] * (again_d[i] - 0.5), 1e-5);
        }
    }
  });
}

TEST(layers_kernels, bias_gelu_equals_float64_on_every_target) {
  on_each_target([] {
    for (int64_t columns : {1, 7, 16, 35}) {
      const int64_t rows = 3;
      const auto n = static_cast<size_t>(rows * columns), c = static_cast<size_t>(columns);
      auto x = wave<float>(n, 0.9), b = wave<float>(c, 0.2), dy = wave<float>(n, 0.4);
      auto x64 = wave<double>(n, 0.9), b64 = wave<double>(c, 0.2), dy64 = wave<double>(n, 0.4);
      std::vector<float> y(n), dx(n), db(c);
      std::vector<double> y64(n), dx64(n), db64(c);
      bias_gelu(x.data(), b.data(), y.data(), rows, columns);
      bias_gelu(x64.data(), b64.data(), y64.data(), rows, columns);
      near(y, y64, 3e-6);
      bias_gelu_backward(x.data(), b.data(), dy.data(), dx.data(), db.data(), rows, columns);
      bias_gelu_backward(x64.data(), b64.data(), dy64.data(), dx64.data(), db64.data(), rows,
                         columns);
      near(dx, dx64, 5e-6);
      near(db, db64, 1e-5);
    }
  });
}

}  // namespace kernels_test
