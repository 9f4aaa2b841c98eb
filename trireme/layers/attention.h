// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/export.h"

namespace trireme {

/// What a query sees, when queries and keys are two ranges of the places of a row: the query at
/// place p sees the keys at the places starts[p] … p, as far as they are in the range of keys.
struct AttentionMask {
  int64_t queries_at = 0;  // the place of the first query
  int64_t keys_at = 0;     // the place of the first key
  /// For each query the first place that it sees, [batch, queries], int64, on the device of the
  /// queries; places are those of the row, not of the range. Undefined: 0.
  at::Tensor starts;
};

struct Attended {
  at::Tensor out;  // [batch, queries, heads, d]; 0 where a query sees no key
  /// The logarithm of the sum that a row of probabilities was divided by, [batch, heads, queries],
  /// in float32 or float64; -∞ where a query sees no key. Not differentiable: results over several
  /// ranges of keys are put together from it.
  at::Tensor log_sums;
};

/// softmax(Q Kᵀ / √d) V for each head. q: [batch, queries, heads, d]; k and v: [batch, keys,
/// kv_heads, d], where kv_heads divides heads: query head h reads key/value head h / (heads /
/// kv_heads) where it lies, without a copy. Any strides.
///
/// float32, float64 and bfloat16 (computed in float32) on the CPU: tiles of rows, of which what no
/// row sees is left out, and no [queries, keys] matrix is kept for backward. Other dtypes and
/// devices: LibTorch's operators. Can be differentiated once. Runs on the calling thread.
/// UsageError for shapes that do not fit and, on the CPU, for starts outside of 0 … p.
TRIREME_API Attended attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionMask& mask = {});

}  // namespace trireme
