// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// Between float32 and half precision, for optimizers and communication hooks: bfloat16 in vectors
// (LibTorch 1.13's copy is scalar there), the rest as LibTorch does. The same bits as Tensor::to(),
// NaN's aside.
namespace trireme {

/// bfloat16 bits ↔ float32; to the nearest, ties to even, NaN stays NaN.
void widen_bfloat16(const uint16_t* from, float* to, int64_t n);
void round_to_bfloat16(const float* from, uint16_t* to, int64_t n);

/// to.copy_(from) for contiguous tensors of one shape, one of them half precision. No autograd.
void cast_copy(const at::Tensor& to, const at::Tensor& from);

}  // namespace trireme
