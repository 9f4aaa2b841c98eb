// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "trireme/comm/group.h"

namespace trireme::detail {

/// Where a few numbers must lie that this group, or backend, is to move: in CPU memory, or, where
/// it takes CUDA tensors alone, on this thread's current GPU.
template <class Group>
at::Device reachable_device(const Group& group, Collective op, at::ScalarType dtype) {
  return group.supports(op, dtype, at::kCPU) ? at::kCPU : at::kCUDA;
}

}  // namespace trireme::detail
