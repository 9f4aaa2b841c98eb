// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/finite_kernels.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/tensor/finite_kernels.cc"
// clang-format off
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::finite_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

enum class Copy { kNone, kThroughCache, kPastCache };

// The largest magnitude tells; nothing branches on the way.
template <Copy kCopy, class T>
T Largest(const T* HWY_RESTRICT from, T* HWY_RESTRICT to, size_t n) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(d, std::numeric_limits<T>::max());
  auto a = hn::Zero(d), b = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto x = hn::LoadU(d, from + i), y = hn::LoadU(d, from + i + lanes);
    a = hn::Max(a, hn::And(x, magnitude));
    b = hn::Max(b, hn::And(y, magnitude));
    if (kCopy == Copy::kThroughCache) {
      hn::StoreU(x, d, to + i);
      hn::StoreU(y, d, to + i + lanes);
    } else if (kCopy == Copy::kPastCache) {
      hn::Stream(x, d, to + i);
      hn::Stream(y, d, to + i + lanes);
    }
  }
  T lane[HWY_MAX_BYTES / sizeof(T)], most = 0;
  hn::StoreU(hn::Max(a, b), d, lane);
  for (size_t k = 0; k < lanes; ++k) most = std::max(most, lane[k]);
  if (kCopy == Copy::kPastCache) hwy::FlushStream();
  for (; i < n; ++i) {
    most = std::max(most, static_cast<T>(from[i] & std::numeric_limits<T>::max()));
    if (kCopy != Copy::kNone) to[i] = from[i];
  }
  return most;
}

// So much is out of the cache again before anybody reads it; past it, its lines are not read first.
constexpr size_t kLarge = size_t{4} << 20;

template <class T>
T LargestOf(const T* from, T* to, size_t n) {
  if (!to) return Largest<Copy::kNone>(from, to, n);
  const bool aligned = reinterpret_cast<uintptr_t>(to) % HWY_MAX_BYTES == 0;
  return aligned && n * sizeof(T) >= kLarge ? Largest<Copy::kPastCache>(from, to, n)
                                            : Largest<Copy::kThroughCache>(from, to, n);
}

int16_t Largest16(const int16_t* from, int16_t* to, size_t n) { return LargestOf(from, to, n); }
int32_t Largest32(const int32_t* from, int32_t* to, size_t n) { return LargestOf(from, to, n); }
int64_t Largest64(const int64_t* from, int64_t* to, size_t n) { return LargestOf(from, to, n); }

}  // namespace HWY_NAMESPACE
}  // namespace trireme::finite_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::finite_kernels {
HWY_EXPORT(Largest16);
HWY_EXPORT(Largest32);
HWY_EXPORT(Largest64);
}  // namespace trireme::finite_kernels

namespace trireme {

using namespace finite_kernels;  // NOLINT: the dispatch tables

bool finite_bits16(const int16_t* from, int16_t* to, size_t n, int16_t infinity) {
  return HWY_DYNAMIC_DISPATCH(Largest16)(from, to, n) < infinity;
}
bool finite_bits32(const int32_t* from, int32_t* to, size_t n) {
  return HWY_DYNAMIC_DISPATCH(Largest32)(from, to, n) < 0x7f800000;
}
bool finite_bits64(const int64_t* from, int64_t* to, size_t n) {
  return HWY_DYNAMIC_DISPATCH(Largest64)(from, to, n) < 0x7ff0000000000000;
}

}  // namespace trireme
#endif  // HWY_ONCE
