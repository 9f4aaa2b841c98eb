// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/planner/memory_plan.h"
#include "trireme/planner/memory_verdict.h"

namespace trireme {

/// Of this machine and of the cgroups and limits that this process is in. Files are looked for
/// under `root`.
HostMemory host_memory(const std::string& root = "");

/// What to do about a verdict that is not "fits".
std::string memory_advice(const MemoryPlan& plan);

}  // namespace trireme
