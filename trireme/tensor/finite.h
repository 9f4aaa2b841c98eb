// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/export.h"

namespace trireme {

/// No element is a NaN or an infinity. One read of a dense tensor; float64, float32, float16 and
/// bfloat16 on a CPU are looked at in place, others through LibTorch.
TRIREME_API bool all_finite(const at::Tensor& t);

}  // namespace trireme
