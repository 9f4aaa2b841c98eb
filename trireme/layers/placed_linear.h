// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::detail {

/// at::linear with the same bits, whose backward writes the weight's gradient straight into the
/// place that somebody offers for it (tensor/gradient_place.h). For what takes_place() allows; bias
/// may be undefined.
at::Tensor placed_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Recorded, contiguous and of one dtype in the CPU's memory, x [.., in], no autocast; and a place
/// is offered now and then. Only of [rows, in] in float32 the backward says whether all of the
/// weight's gradient is finite.
bool takes_place(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace trireme::detail
