// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::detail {

/// bias_gelu() from LibTorch's operators, on every dtype and device.
at::Tensor bias_gelu_aten(const at::Tensor& x, const at::Tensor& bias);

}  // namespace trireme::detail
