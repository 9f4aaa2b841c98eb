// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"

// No element is a NaN or an infinity? float64, float32, float16 and bfloat16 in contiguous CPU
// memory are looked at in place, on LibTorch's threads where there are several; others through
// LibTorch, on whatever device they are.
namespace trireme {

TRIREME_API bool all_finite(const at::Tensor& t);
/// The index of the first tensor that is not all finite; -1: none. Undefined ones are passed over.
/// What is not the CPU's is looked at where it is, and crosses as one byte each, all in one
/// transfer that this waits for.
TRIREME_API int64_t first_not_finite(const std::vector<at::Tensor>& tensors);
/// to.copy_(from), and whether `from` is finite: in one pass where both lie so and are of one dtype
/// and shape.
TRIREME_API bool copy_all_finite(const at::Tensor& to, const at::Tensor& from);

}  // namespace trireme
