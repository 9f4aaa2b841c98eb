// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/layers/causal_attention_kernels.h"

namespace trireme::detail {

/// Throws UsageError unless qkv is [batch, time, 3 · heads · width].
AttentionShape attention_shape(const at::Tensor& qkv, int64_t heads);

/// Throws UsageError unless `starts` is [batch, time] of int64 on qkv's device.
void check_starts(const at::Tensor& starts, const AttentionShape& s, const at::Tensor& qkv);

/// Attention by LibTorch's fused kernels where the device has some and rows are one document each,
/// else by its operators.
at::Tensor causal_attention_aten(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts);

}  // namespace trireme::detail
