// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "trireme/comm/group.h"

namespace trireme::pretend {

/// fn as n ranks (at most kDevices), threads of this process with a device each as the current one.
/// Their group moves the device's tensors as NCCL moves a GPU's: on a stream of its own, in order
/// with the current one, and late; wait() orders the current stream and does not block. Tensors of
/// the CPU travel too, and wait() blocks for them.
void run_on_devices(int n, const std::function<void(Group, c10::Device)>& fn);

}  // namespace trireme::pretend
