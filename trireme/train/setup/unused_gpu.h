// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"

namespace trireme {

/// The message of a run on a machine with a GPU (device: auto selects the CPU).
inline constexpr const char* kUnusedGpu =
    "there is a GPU here, and this version trains on the CPU: a loop of your own with "
    "DistributedDataParallel takes CUDA tensors";
/// Whether LibTorch sees a GPU, or the driver has one that this LibTorch cannot see. `device_file`
/// is the driver's.
TRIREME_API bool has_gpu(const char* device_file = "/dev/nvidia0");

}  // namespace trireme
