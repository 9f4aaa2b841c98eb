// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// bfloat16 bits ↔ float32, for kernels that work through half-precision memory piece by piece; a
// whole tensor's copy_() is as fast.
namespace trireme {

void widen_bfloat16(const uint16_t* from, float* to, int64_t n);
/// To the nearest, ties to even, as LibTorch; NaN stays NaN.
void round_to_bfloat16(const float* from, uint16_t* to, int64_t n);

}  // namespace trireme
