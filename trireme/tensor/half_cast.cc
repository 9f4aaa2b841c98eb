// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/half_cast.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/tensor/half_cast.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::half_cast {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline uint32_t rounded(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

void Widen(const uint16_t* from, float* to, size_t n) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const size_t lanes = hn::Lanes(d);
  auto* out = reinterpret_cast<uint32_t*>(to);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, from + i))), d, out + i);
  for (; i < n; ++i) out[i] = static_cast<uint32_t>(from[i]) << 16;
}

void Round(const float* from, uint16_t* to, size_t n) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const size_t lanes = hn::Lanes(d);
  const auto* in = reinterpret_cast<const int32_t*>(from);
  const auto one = hn::Set(d, 1), bias = hn::Set(d, 0x7fff), nan = hn::Set(d, 0x7fc0),
             magnitude = hn::Set(d, 0x7fffffff), infinity = hn::Set(d, 0x7f800000),
             low = hn::Set(d, 0xffff);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, in + i);
    const auto odd = hn::And(hn::ShiftRight<16>(x), one);
    const auto near = hn::And(hn::ShiftRight<16>(hn::Add(hn::Add(x, bias), odd)), low);
    const auto is_nan = hn::Gt(hn::And(x, magnitude), infinity);
    hn::StoreU(hn::DemoteTo(half, hn::IfThenElse(is_nan, nan, near)), half, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<uint16_t>(rounded(static_cast<uint32_t>(in[i])));
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::half_cast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::half_cast {
HWY_EXPORT(Widen);
HWY_EXPORT(Round);
}  // namespace trireme::half_cast

namespace trireme {

using namespace half_cast;  // NOLINT: the dispatch tables

void widen_bfloat16(const uint16_t* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, to, static_cast<size_t>(n));
}

void round_to_bfloat16(const float* from, uint16_t* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Round)(from, to, static_cast<size_t>(n));
}

}  // namespace trireme
#endif  // HWY_ONCE
