// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention_exp_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

// Three targets are enough, and each costs its compile time again.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/layers/attention_exp_kernels.cc"
// The order matters.
// clang-format off
#include <hwy/foreach_target.h>  // includes this file again, once a target
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::attention_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// hn::Exp gives 0 for a NaN, which would hide it.
HWY_INLINE VF exp_or_nan(DF d, VF x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

// Columns past the visible ones, up to a whole vector, become 0; what a vector load would add there
// is discarded by the first `visible` mask.
void causal_exp(float* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible,
                float* sums, float* logs) {
  const DF d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * ld;
    const int64_t visible = std::min(first_visible + r, columns), whole = visible / n * n;
    const auto part = hn::FirstN(d, static_cast<size_t>(visible - whole));
    auto most = lowest;
    for (int64_t i = 0; i < whole; i += n) most = hn::Max(most, hn::LoadU(d, row + i));
    if (whole < visible)
      most = hn::Max(most, hn::IfThenElse(part, hn::LoadU(d, row + whole), lowest));
    const auto shift = hn::MaxOfLanes(d, most);
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < whole; i += n) {
      const auto e = exp_or_nan(d, hn::Sub(hn::LoadU(d, row + i), shift));
      hn::StoreU(e, d, row + i);
      sum = hn::Add(sum, e);
    }
    int64_t done = whole;
    if (whole < visible) {
      const auto e =
          hn::IfThenElseZero(part, exp_or_nan(d, hn::Sub(hn::LoadU(d, row + whole), shift)));
      hn::StoreU(e, d, row + whole);
      sum = hn::Add(sum, e);
      done += n;
    }
    std::fill(row + std::min(done, columns), row + columns, 0.0f);
    sums[r] = hn::GetLane(hn::SumOfLanes(d, sum));
    logs[r] = hn::GetLane(shift) + std::log(sums[r]);
  }
}

void causal_exp_backward(float* s, float* dp, int64_t rows, int64_t columns, int64_t ld,
                         int64_t first_visible, const float* logs, const float* delta) {
  const DF d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * ld;
    float* drow = dp + r * ld;
    const int64_t visible = std::min(first_visible + r, columns), whole = visible / n * n;
    const auto log = hn::Set(d, logs[r]), shift = hn::Set(d, delta[r]);
    auto one = [&](int64_t i) { return exp_or_nan(d, hn::Sub(hn::LoadU(d, row + i), log)); };
    for (int64_t i = 0; i < whole; i += n) {
      const auto p = one(i);
      hn::StoreU(p, d, row + i);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, drow + i), shift)), d, drow + i);
    }
    int64_t done = whole;
    if (whole < visible) {
      const auto part = hn::FirstN(d, static_cast<size_t>(visible - whole));
      const auto p = hn::IfThenElseZero(part, one(whole));
      hn::StoreU(p, d, row + whole);
      const auto ds = hn::Mul(p, hn::Sub(hn::LoadU(d, drow + whole), shift));
      hn::StoreU(hn::IfThenElseZero(part, ds), d, drow + whole);
      done += n;
    }
    std::fill(row + std::min(done, columns), row + columns, 0.0f);
    std::fill(drow + std::min(done, columns), drow + columns, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::attention_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::attention_kernels {
HWY_EXPORT(causal_exp);
HWY_EXPORT(causal_exp_backward);
}  // namespace trireme::attention_kernels

namespace trireme::detail {

using namespace attention_kernels;  // NOLINT: the dispatch tables

template <>
void causal_exp<float>(float* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible,
                       float* sums, float* logs) {
  HWY_DYNAMIC_DISPATCH(causal_exp)(s, rows, columns, ld, first_visible, sums, logs);
}
template <>
void causal_exp_backward<float>(float* s, float* dp, int64_t rows, int64_t columns, int64_t ld,
                                int64_t first_visible, const float* logs, const float* delta) {
  HWY_DYNAMIC_DISPATCH(causal_exp_backward)(s, dp, rows, columns, ld, first_visible, logs, delta);
}
template <>
void causal_exp<double>(double* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible,
                        double* sums, double* logs) {
  for (int64_t r = 0; r < rows; ++r) {
    double* row = s + r * ld;
    const int64_t visible = std::min(first_visible + r, columns);
    const double most = *std::max_element(row, row + visible);
    sums[r] = 0;
    for (int64_t i = 0; i < visible; ++i) sums[r] += row[i] = std::exp(row[i] - most);
    std::fill(row + visible, row + columns, 0.0);
    logs[r] = most + std::log(sums[r]);
  }
}
template <>
void causal_exp_backward<double>(double* s, double* dp, int64_t rows, int64_t columns, int64_t ld,
                                 int64_t first_visible, const double* logs, const double* delta) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      auto &p = s[r * ld + i], &g = dp[r * ld + i];
      p = i < first_visible + r ? std::exp(p - logs[r]) : 0;
      g = i < first_visible + r ? p * (g - delta[r]) : 0;
    }
}

}  // namespace trireme::detail
#endif
