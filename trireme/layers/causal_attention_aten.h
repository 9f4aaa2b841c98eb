// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/layers/causal_attention_kernels.h"

namespace trireme::detail {

/// Throws UsageError unless qkv is [batch, time, 3 · heads · width].
AttentionShape attention_shape(const at::Tensor& qkv, int64_t heads);

/// Attention by LibTorch's fused kernels where the device has some, else by its operators.
at::Tensor causal_attention_aten(const at::Tensor& qkv, int64_t heads);

}  // namespace trireme::detail
