// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::detail {

/// The queries of all heads, then keys, then values: a row of qkv.
struct AttentionShape {
  int64_t batch, time, heads, width;
  /// Elements from one position to the next in qkv, and in the output.
  int64_t row() const { return 3 * heads * width; }
  int64_t out_row() const { return heads * width; }
};

/// Throws UsageError unless qkv is [batch, time, 3 · heads · width].
AttentionShape attention_shape(const at::Tensor& qkv, int64_t heads);

/// Throws UsageError unless `starts` is [batch, time] of int64 on qkv's device.
void check_starts(const at::Tensor& starts, const AttentionShape& s, const at::Tensor& qkv);

/// Attention by LibTorch's fused kernels where the device has some and rows are one document each,
/// else by its operators.
at::Tensor causal_attention_aten(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts);

}  // namespace trireme::detail
