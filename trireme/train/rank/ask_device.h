// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/front/device_check.h"

namespace trireme {

/// What this process, which links LibTorch, finds for the ranks of a host: choose_device() of each
/// of them. Opens a device only if its memory is asked for.
TRIREME_API DeviceAnswer ask_device(const DeviceQuestion& question);

}  // namespace trireme
