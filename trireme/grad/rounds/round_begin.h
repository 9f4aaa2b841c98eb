// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace trireme {

/// `output` as it is; when a backward comes to it, `begin` runs first. Undefined tensors and those
/// that require no gradient come back as they are.
at::Tensor begin_round_with(const at::Tensor& output, std::function<void()> begin);

}  // namespace trireme
