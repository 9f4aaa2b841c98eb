// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"

namespace torch::nn {
class Module;
}

// Which device a run computes on. Each of these throws UsageError, in one sentence that names the
// configuration's place, for a device that is not there.
namespace trireme {

/// Of `device`, for this rank: the number of a GPU is the rank's local one, as its launcher says
/// (LOCAL_RANK), or among ranks that are threads of one process, its rank. Refuses a group whose
/// backend does not take the device's tensors, and ranks of which one has a GPU and another the
/// CPU: all ranks call, and get the same sentence.
TRIREME_API at::Device run_device(const Config& config, const Group& group);
/// The same before there is a group, so that no rank waits for one that cannot come.
TRIREME_API at::Device run_device(const Config& config);
/// For a module of the caller's own: a module that is on a device stays there, and one that is on
/// the CPU goes where `device` says, if that is not auto. Refuses a module on two devices, or on
/// another one than `device` says, and ranks of different kinds, as above.
TRIREME_API at::Device engine_device(const Config& config, const torch::nn::Module& module,
                                     const Group& group);

/// Refuses what the configuration asks for and only runs on the CPU.
TRIREME_API void check_device(const Config& config, at::Device device);
/// For the start line: "on cuda:0"; "" for the CPU.
TRIREME_API std::string describe_device(at::Device device);

}  // namespace trireme
