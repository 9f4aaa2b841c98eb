// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::testing {

constexpr int kStandInGpus = 2;

/// A stand-in GPU's tensor as one of the CPU, which shares its bytes and keeps them.
at::Tensor for_kernels(const at::Tensor& t);

}  // namespace trireme::testing
