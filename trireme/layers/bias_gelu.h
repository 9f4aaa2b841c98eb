// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/export.h"

namespace trireme {

/// gelu(x + bias) in its tanh form; x: […, n], bias: [n]. float32 and float64 on the CPU: one pass
/// forward and one backward (which adds up the bias gradient on the way). bfloat16 with a bias of
/// bfloat16 or float32: the same in float32, given back in bfloat16. Other dtypes and devices:
/// LibTorch's operators. Can be differentiated once.
TRIREME_API at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias);

}  // namespace trireme
