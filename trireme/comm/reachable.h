// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "trireme/comm/group.h"
#include "trireme/tensor/device/kind.h"

namespace trireme::detail {

/// Returns the device on which small tensors must be for this group or backend: the CPU or, if it
/// takes only those of another kind of device, this thread's current one of that kind.
template <class Group>
at::Device reachable_device(const Group& group, Collective op, at::ScalarType dtype) {
  if (group.supports(op, dtype, at::kCPU)) return at::kCPU;
  for (const at::DeviceType type : asynchronous_kinds())
    if (group.supports(op, dtype, type)) return with_index(type);
  return at::kCPU;  // which says why it does not take them
}

}  // namespace trireme::detail
