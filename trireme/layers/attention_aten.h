// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/layers/attention_blocks.h"

namespace trireme::detail {

/// attend_block() and attend_block_backward() by LibTorch's operators, on every dtype and device.
void attention_aten(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionMask& mask, const at::Tensor& out, const at::Tensor& log_sums,
                    bool first);
void attention_backward_aten(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionMask& mask, const at::Tensor& out,
                             const at::Tensor& dout, const at::Tensor& log_sums,
                             const BlockGradients& gradients);

}  // namespace trireme::detail
