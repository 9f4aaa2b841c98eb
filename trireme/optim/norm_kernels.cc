// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/norm_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

// Accumulators stand in an array, which targets with sizeless vectors cannot have.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/norm_kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#ifndef TRIREME_OPTIM_NORM_KERNELS_ONCE
#define TRIREME_OPTIM_NORM_KERNELS_ONCE
namespace trireme {
constexpr size_t kPartials = 16;

inline double add_partials(double* partial) {
  for (size_t width = kPartials / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  return partial[0];
}
}  // namespace trireme
#endif

HWY_BEFORE_NAMESPACE();
namespace trireme::norm_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<double, 8>;
using F = hn::Rebind<float, D>;

constexpr size_t kLanes = hn::MaxLanes(D());
constexpr size_t kVectors = kPartials / kLanes;

// The square of a float32 is exact in float64, so fused or not gives the same.
HWY_INLINE void add_squares(const float* x, hn::Vec<D>* sum) {
#pragma GCC unroll 16
  for (size_t k = 0; k < kVectors; ++k) {
    const auto wide = hn::PromoteTo(D(), hn::LoadU(F(), x + k * kLanes));
    sum[k] = hn::Add(sum[k], hn::Mul(wide, wide));
  }
}

double BlockSquareSum(const float* x, size_t n) {
  const D d;
  hn::Vec<D> sum[kVectors];
#pragma GCC unroll 16
  for (size_t k = 0; k < kVectors; ++k) sum[k] = hn::Zero(d);
  size_t i = 0;
  for (; i + kPartials <= n; i += kPartials) add_squares(x + i, sum);
  if (i < n) {
    float tail[kPartials] = {};
    std::memcpy(tail, x + i, (n - i) * sizeof(float));
    add_squares(tail, sum);
  }
  HWY_ALIGN double partial[kPartials];
#pragma GCC unroll 16
  for (size_t k = 0; k < kVectors; ++k) hn::StoreU(sum[k], d, partial + k * kLanes);
  return add_partials(partial);
}

void BlockSquareSums(const float* x, size_t n, double* out) {
  for (size_t i = 0; i < n; i += kNormBlock)
    *out++ = BlockSquareSum(x + i, std::min<size_t>(n - i, kNormBlock));
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::norm_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::norm_kernels {
HWY_EXPORT(BlockSquareSums);
}  // namespace trireme::norm_kernels

namespace trireme {

using namespace norm_kernels;  // NOLINT: the dispatch tables

void block_square_sums(const float* x, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(BlockSquareSums)(x, static_cast<size_t>(n), out);
}

void block_square_sums(const double* x, int64_t n, double* out) {
  for (int64_t begin = 0; begin < n; begin += kNormBlock) {
    double partial[kPartials] = {};
    const int64_t end = std::min(n, begin + kNormBlock);
    for (int64_t i = begin; i < end; ++i)
      partial[static_cast<size_t>(i - begin) % kPartials] += x[i] * x[i];
    *out++ = add_partials(partial);
  }
}

double tree_sum(const double* values, int64_t n) {
  if (n == 0) return 0;
  if (n == 1) return values[0];
  const int64_t left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
  return tree_sum(values, left) + tree_sum(values + left, n - left);
}

}  // namespace trireme
#endif  // HWY_ONCE
