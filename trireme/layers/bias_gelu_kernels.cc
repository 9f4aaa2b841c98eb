// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/bias_gelu_kernels.h"

#include <algorithm>
#include <cmath>

// Three targets are enough, and each costs its compile time again.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/layers/bias_gelu_kernels.cc"
// The order matters.
// clang-format off
#include <hwy/foreach_target.h>  // includes this file again, once a target
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::gelu_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// gelu(x) = x · sigmoid(2u), u = √(2/π) (x + 0.044715 x³)
constexpr float kTwoRoot = 1.5957691216057308f;  // 2 √(2/π)
constexpr float kCubic = 0.044715f;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

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

}  // namespace HWY_NAMESPACE
}  // namespace trireme::gelu_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::gelu_kernels {
HWY_EXPORT(bias_gelu);
HWY_EXPORT(bias_gelu_backward);
}  // namespace trireme::gelu_kernels

namespace trireme::detail {

using namespace gelu_kernels;  // NOLINT: the dispatch tables

template <>
void bias_gelu<float>(const float* x, const float* bias, float* y, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(bias_gelu)(x, bias, y, rows, columns);
}
template <>
void bias_gelu_backward<float>(const float* x, const float* bias, const float* dy, float* dx,
                               float* dbias, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(bias_gelu_backward)(x, bias, dy, dx, dbias, rows, columns);
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
