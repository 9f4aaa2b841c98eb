// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/optim/flat_kernels.h"

// The passes of flat_kernels.h as LibTorch operations, for parameters that are not in CPU memory.
namespace trireme {

void adamw_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, at::Tensor v,
                const AdamWScalars& s);
void sgd_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const SgdScalars& s);

}  // namespace trireme
