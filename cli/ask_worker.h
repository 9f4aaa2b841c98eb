// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/front/device_check.h"

namespace trireme {

/// Asks trireme-worker, which links LibTorch. {} where it is not there or gives no answer within
/// a minute: the ranks that follow have the same trouble, and say it.
DeviceAnswer ask_worker(const DeviceQuestion& question);

}  // namespace trireme
