// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random_kernels.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/philox.h"

// Three targets are enough, and each costs its compile time again.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/tensor/random/random_kernels.cc"
#include <hwy/foreach_target.h>  // includes this file again, once a target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trireme::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR  // has no MulEven

void philox_call(uint64_t key, uint64_t first, uint64_t* out) {
  for (uint64_t i = 0; i < kBlocksPerCall; ++i) {
    const auto block = philox_block(key, 0, first + i);
    out[i] = block[0] | uint64_t{block[1]} << 32;
    out[kBlocksPerCall + i] = block[2] | uint64_t{block[3]} << 32;
  }
}

#else

// 64-bit lanes, one block a lane; the upper halves may hold rubbish, which MulEven does not read.
using D64 = hn::CappedTag<uint64_t, kBlocksPerCall>;
using V64 = hn::Vec<D64>;

// Words 0 and 1 of Lanes(d) blocks into `low`, words 2 and 3 into `high`.
HWY_INLINE void philox_vector(D64 d, uint64_t key, uint64_t first, V64& low, V64& high) {
  const hn::Repartition<uint32_t, D64> d32;
  const auto m0 = hn::BitCast(d32, hn::Set(d, 0xD2511F53u));
  const auto m1 = hn::BitCast(d32, hn::Set(d, 0xCD9E8D57u));
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  auto c0 = hn::Add(hn::Iota(d, 0), hn::Set(d, first));
  auto c1 = hn::ShiftRight<32>(c0);
  auto c2 = hn::Zero(d), c3 = hn::Zero(d);
  for (int round = 0; round < 10; ++round) {
    const auto p0 = hn::MulEven(hn::BitCast(d32, c0), m0);
    const auto p1 = hn::MulEven(hn::BitCast(d32, c2), m1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const auto lower = hn::Set(d, 0xFFFFFFFFu);
  low = hn::Or(hn::And(c0, lower), hn::ShiftLeft<32>(c1));
  high = hn::Or(hn::And(c2, lower), hn::ShiftLeft<32>(c3));
}

// The 16 blocks from `first`: words 0 and 1 of each, then words 2 and 3 of each.
HWY_INLINE void philox_call(uint64_t key, uint64_t first, uint64_t* out) {
  const D64 d;
  for (size_t i = 0; i < kBlocksPerCall; i += hn::Lanes(d)) {
    V64 low, high;
    philox_vector(d, key, first + i, low, high);
    hn::StoreU(low, d, out + i);
    hn::StoreU(high, d, out + kBlocksPerCall + i);
  }
}

#endif

void philox_words(uint64_t key, uint64_t first, uint32_t* out) {
  uint64_t halves[2 * kBlocksPerCall];
  philox_call(key, first, halves);
  for (int i = 0; i < kBlocksPerCall; ++i) {
    out[4 * i] = static_cast<uint32_t>(halves[i]);
    out[4 * i + 1] = static_cast<uint32_t>(halves[i] >> 32);
    out[4 * i + 2] = static_cast<uint32_t>(halves[kBlocksPerCall + i]);
    out[4 * i + 3] = static_cast<uint32_t>(halves[kBlocksPerCall + i] >> 32);
  }
}

void dropout_row(const float* x, float* y, int64_t n, uint64_t key, uint32_t threshold, float scale,
                 int64_t first) {
  constexpr int64_t kGroup = kDropoutGroup;
  const hn::CappedTag<float, 64> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint16_t, decltype(df)> d16;
  const auto limit = hn::Set(di, static_cast<int32_t>(threshold));
  const auto factor = hn::Set(df, scale);
  uint64_t bits[2 * kBlocksPerCall];
  uint16_t numbers[kGroup];
  float tail_in[kGroup], tail_out[kGroup];
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    philox_call(key, static_cast<uint64_t>((first + begin) / 8), bits);
    std::memcpy(numbers, bits, sizeof numbers);
    const int64_t left = std::min(kGroup, n - begin);
    const bool whole = left == kGroup;
    if (!whole) std::memcpy(tail_in, x + begin, static_cast<size_t>(left) * sizeof(float));
    const float* in = whole ? x + begin : tail_in;
    float* out = whole ? y + begin : tail_out;
    const int64_t step = static_cast<int64_t>(hn::Lanes(df));
    for (int64_t i = 0; i < left; i += step) {
      const auto number = hn::PromoteTo(di, hn::LoadU(d16, numbers + i));
      const auto drop = hn::RebindMask(df, hn::Gt(limit, number));
      hn::StoreU(hn::IfThenZeroElse(drop, hn::Mul(hn::LoadU(df, in + i), factor)), df, out + i);
    }
    if (!whole) std::memcpy(y + begin, tail_out, static_cast<size_t>(left) * sizeof(float));
  }
}

}  // namespace trireme::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::detail {

HWY_EXPORT(philox_words);
HWY_EXPORT(dropout_row);

void philox_words(uint64_t key, uint64_t first_block, uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(philox_words)(key, first_block, out);
}

void dropout_row(const float* x, float* y, int64_t n, uint64_t key, uint32_t threshold, float scale,
                 int64_t first) {
  HWY_DYNAMIC_DISPATCH(dropout_row)(x, y, n, key, threshold, scale, first);
}

}  // namespace trireme::detail
#endif
