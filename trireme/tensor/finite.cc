// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/finite.h"

#include <ATen/ops/isfinite.h>

#include <cstdint>

namespace trireme {
namespace {

// Not finite is "all exponent bits set". Blocks keep the loop free of branches, so that compilers
// make it SIMD, and end the search early.
template <class Bits, Bits kExponent>
bool finite_bits(const void* data, int64_t n) {
  const auto* p = static_cast<const Bits*>(data);
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = n - begin < kBlock ? n : begin + kBlock;
    Bits bad = 0;
    for (int64_t i = begin; i < end; ++i)
      bad = static_cast<Bits>(bad | static_cast<Bits>((p[i] & kExponent) == kExponent));
    if (bad) return false;
  }
  return true;
}

}  // namespace

bool all_finite(const at::Tensor& t) {
  if (t.device().is_cpu() && t.layout() == at::kStrided && t.is_contiguous()) {
    const void* p = t.data_ptr();
    switch (t.scalar_type()) {
      case at::kFloat:
        return finite_bits<uint32_t, 0x7f800000u>(p, t.numel());
      case at::kDouble:
        return finite_bits<uint64_t, 0x7ff0000000000000u>(p, t.numel());
      case at::kBFloat16:
        return finite_bits<uint16_t, 0x7f80u>(p, t.numel());
      case at::kHalf:
        return finite_bits<uint16_t, 0x7c00u>(p, t.numel());
      default:
        break;
    }
  }
  return at::isfinite(t).all().item<bool>();
}

}  // namespace trireme
