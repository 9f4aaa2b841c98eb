// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

// Three targets are enough, and each costs its compile time again.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/layers/kernels.cc"
// The order matters.
// clang-format off
#include <hwy/foreach_target.h>  // includes this file again, once a target
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// gelu(x) = x · sigmoid(2u), u = √(2/π) (x + 0.044715 x³)
constexpr float kTwoRoot = 1.5957691216057308f;  // 2 √(2/π)
constexpr float kCubic = 0.044715f;

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

HWY_INLINE VF sigmoid_2u(DF d, VF x, VF square) {
  const auto u2 = hn::Mul(hn::Mul(x, hn::Set(d, kTwoRoot)),
                          hn::MulAdd(square, hn::Set(d, kCubic), hn::Set(d, 1.0f)));
  // exp(104), the most that hn::Exp takes, is infinity, and 1 / infinity the 0 that is wanted.
  return hn::Div(hn::Set(d, 1.0f),
                 hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(hn::Max(u2, hn::Set(d, -104.0f))))));
}

HWY_INLINE VF gelu(DF d, VF x) { return hn::Mul(x, sigmoid_2u(d, x, hn::Mul(x, x))); }

HWY_INLINE VF gelu_slope(DF d, VF x) {
  const auto one = hn::Set(d, 1.0f), square = hn::Mul(x, x);
  const auto s = sigmoid_2u(d, x, square);
  const auto du2 = hn::Mul(hn::Set(d, kTwoRoot), hn::MulAdd(square, hn::Set(d, 3 * kCubic), one));
  return hn::MulAdd(hn::Mul(hn::Mul(x, s), hn::Sub(one, s)), du2, s);
}

// f(i) for whole vectors of a row, tail(i, count) for the rest.
template <class Whole, class Tail>
HWY_INLINE void along(int64_t columns, Whole whole, Tail tail) {
  const auto n = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  for (; i + n <= columns; i += n) whole(i);
  if (i < columns) tail(i, static_cast<size_t>(columns - i));
}

HWY_INLINE VF load_some(DF d, const float* p, size_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  std::copy_n(p, count, lanes);
  return hn::Load(d, lanes);
}

HWY_INLINE void store_some(DF d, VF v, float* p, size_t count) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  std::copy_n(lanes, count, p);
}

void bias_gelu(const float* x, const float* bias, float* y, int64_t rows, int64_t columns) {
  const DF d;
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns)
    along(
        columns,
        [&](int64_t i) {
          hn::StoreU(gelu(d, hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, bias + i))), d, y + i);
        },
        [&](int64_t i, size_t count) {
          store_some(d, gelu(d, hn::Add(load_some(d, x + i, count), load_some(d, bias + i, count))),
                     y + i, count);
        });
}

void bias_gelu_backward(const float* x, const float* bias, const float* dy, float* dx, float* dbias,
                        int64_t rows, int64_t columns) {
  const DF d;
  for (int64_t r = 0; r < rows; ++r, x += columns, dy += columns, dx += columns)
    along(
        columns,
        [&](int64_t i) {
          const auto slope = gelu_slope(d, hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, bias + i)));
          const auto g = hn::Mul(hn::LoadU(d, dy + i), slope);
          hn::StoreU(g, d, dx + i);
          hn::StoreU(hn::Add(hn::LoadU(d, dbias + i), g), d, dbias + i);
        },
        [&](int64_t i, size_t count) {
          const auto slope =
              gelu_slope(d, hn::Add(load_some(d, x + i, count), load_some(d, bias + i, count)));
          const auto g = hn::Mul(load_some(d, dy + i, count), slope);
          store_some(d, g, dx + i, count);
          store_some(d, hn::Add(load_some(d, dbias + i, count), g), dbias + i, count);
        });
}

}  // namespace trireme::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::detail {

HWY_EXPORT(causal_exp);
HWY_EXPORT(causal_exp_backward);
HWY_EXPORT(bias_gelu);
HWY_EXPORT(bias_gelu_backward);

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
void bias_gelu<float>(const float* x, const float* bias, float* y, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(bias_gelu)(x, bias, y, rows, columns);
}
template <>
void bias_gelu_backward<float>(const float* x, const float* bias, const float* dy, float* dx,
                               float* dbias, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(bias_gelu_backward)(x, bias, dy, dx, dbias, rows, columns);
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

namespace {
const double kRoot = std::sqrt(2 / 3.14159265358979323846);
}
template <>
void bias_gelu<double>(const double* x, const double* bias, double* y, int64_t rows,
                       int64_t columns) {
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double v = x[i] + bias[i % columns];
    y[i] = 0.5 * v * (1 + std::tanh(kRoot * (v + 0.044715 * v * v * v)));
  }
}
template <>
void bias_gelu_backward<double>(const double* x, const double* bias, const double* dy, double* dx,
                                double* dbias, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double v = x[i] + bias[i % columns];
    const double t = std::tanh(kRoot * (v + 0.044715 * v * v * v));
    dx[i] = dy[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * v * v));
    dbias[i % columns] += dx[i];
  }
}

}  // namespace trireme::detail
#endif
