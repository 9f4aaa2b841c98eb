// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::detail {

/// The mask of dropout_row() (random_kernels.h) as integer operators of LibTorch, for any device:
/// true where an element is dropped. [rows, width], a key for each row. Drawn on the device, in the
/// order of its current stream, without waiting.
at::Tensor dropout_mask(c10::ArrayRef<int64_t> row_keys, int64_t width, int64_t threshold,
                        at::Device device);

}  // namespace trireme::detail
