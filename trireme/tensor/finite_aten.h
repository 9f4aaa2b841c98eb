// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

// finite_kernels.h by LibTorch's operators, for any dtype and device.
namespace trireme {

bool all_finite_aten(const at::Tensor& t);
/// The index of the first tensor that is not all finite; -1: none. They are looked at where they
/// are, and cross as one byte each, all in one transfer that this waits for.
int64_t first_not_finite_aten(const std::vector<at::Tensor>& tensors);

}  // namespace trireme
