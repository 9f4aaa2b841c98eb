// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/export.h"

namespace trireme {

/// at::layer_norm over the last dimension, for a bfloat16 input in the CPU's memory: the input, its
/// mean and its deviation are kept, and everything between is float32. The weights [n] may be
/// bfloat16 or float32; the result is bfloat16. (LibTorch 1.13's own takes ten times as long as its
/// float32 one.) Other inputs go to at::layer_norm.
TRIREME_API at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& bias, double epsilon);

}  // namespace trireme
