// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "trireme/comm/group.h"

namespace trireme::testing {

/// As run_on_gpus(), over a group for both: "cpu:local,cuda:nccl".
void run_on_gpus_and_cpus(int n, const std::function<void(Group, at::Device)>& fn);

}  // namespace trireme::testing
