// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/export.h"

namespace trireme {

/// Multi-head self-attention where position t sees positions 0 … t: softmax(Q Kᵀ / √d) V for each
/// head. qkv: [batch, time, 3 · heads · d], the queries of all heads, then keys, then values, as
/// one projection gives them. Returns [batch, time, heads · d].
///
/// float32, float64 and bfloat16 (computed in float32) on the CPU: tiles of rows that leave out the
/// invisible half, read and written where they lie, and instead of the [time, time] probabilities
/// one number a row is kept for backward. Other devices: LibTorch's fused attention, from 2.0 on
/// and unless deterministic algorithms are asked for (tensor/attention_compat.h). Else LibTorch's
/// operators. Can be differentiated once. Runs on the calling thread. (Rabe & Staats 2021; Dao et
/// al., FlashAttention, 2022.)
///
/// `starts`, if it is defined: rows hold documents, and t sees starts[t] … t alone
/// (layers/documents.h; [batch, time], int64, 0 ≤ starts[t] ≤ t). On the CPU, places outside of
/// that are a UsageError, and what no row of a tile sees is not computed.
TRIREME_API at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads,
                                        const at::Tensor& starts = {});

/// The same from LibTorch's operators, on every dtype and device.
TRIREME_API at::Tensor plain_causal_attention(const at::Tensor& qkv, int64_t heads,
                                              const at::Tensor& starts = {});

}  // namespace trireme
