// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "trireme/base/export.h"
#include "trireme/comm/local/types.h"

namespace trireme::local {

/// dst[j][i] = src[0][i] ∘ … ∘ src[n-1][i] for every j < m and i < count.
/// Order: split at the largest power of two below n, recurse; so (0∘1)∘(2∘3) for four,
/// ((0∘1)∘(2∘3))∘4 for five. float16 and bfloat16 stay float32 until one final rounding (nearest
/// even); `avg` scales once, at the end, by 1/n. Integers wrap. NaN propagates in min and max. The
/// value of an element depends on nothing but its n inputs: not on its position, not on `count`,
/// not on the machine's vector length. A dst may be a src (same pointer), else they must not
/// overlap.
TRIREME_API void reduce(DType dtype, ReduceOp op, const void* const* src, int n, void* const* dst,
                        int m, size_t count);

/// Returns the instruction set in use: "AVX3", "AVX2", "SSE2", and so on; part of a reproducible
/// run's identity.
TRIREME_API const char* reduce_target();

}  // namespace trireme::local
