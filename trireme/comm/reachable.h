// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "trireme/comm/group.h"

namespace trireme::detail {

/// Returns the device on which small tensors must be for this group or backend: the CPU or, if it
/// takes only CUDA tensors, this thread's current GPU.
template <class Group>
at::Device reachable_device(const Group& group, Collective op, at::ScalarType dtype) {
  return group.supports(op, dtype, at::kCPU) ? at::kCPU : at::kCUDA;
}

}  // namespace trireme::detail
