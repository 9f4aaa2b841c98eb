// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "trireme/tensor/torch_compat.h"

#if TRIREME_TORCH_AT_LEAST(2, 0)
#include <ATen/ops/scaled_dot_product_attention.h>
#endif

// Attention's part of torch_compat.h.
namespace trireme::compat {

/// LibTorch has kernels for attention as a whole.
constexpr bool kHasFusedAttention = TRIREME_TORCH_AT_LEAST(2, 0);

/// softmax(q kᵀ / √d) v by LibTorch's own fused kernels where the device has them; [batch, heads,
/// time, d], and position t sees 0 … t. nullopt before LibTorch 2.0, whose only kernel puts it
/// together from the same operators as we do, and where the program asked LibTorch for
/// deterministic algorithms: the fused backward adds in the order in which threads come.
inline std::optional<at::Tensor> fused_causal_attention([[maybe_unused]] const at::Tensor& q,
                                                        [[maybe_unused]] const at::Tensor& k,
                                                        [[maybe_unused]] const at::Tensor& v) {
#if TRIREME_TORCH_AT_LEAST(2, 0)
  if (!at::globalContext().deterministicAlgorithms())
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
#endif
  return std::nullopt;
}

}  // namespace trireme::compat
