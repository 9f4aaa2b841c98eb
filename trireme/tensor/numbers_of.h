// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/tensor/host_data.h"

namespace trireme {

/// The numbers of a small tensor, wherever it is; they must be T. Waits for a device, so it is not
/// for gradient hooks.
template <class T>
std::vector<T> numbers_of(const at::Tensor& t) {
  const at::Tensor here = t.detach().cpu().contiguous();
  const T* first = host_data<T>(here);
  return std::vector<T>(first, first + here.numel());
}

}  // namespace trireme
