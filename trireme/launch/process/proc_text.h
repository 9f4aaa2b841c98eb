// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/process/cgroup.h"

// Files of /proc and /sys that may be missing.
namespace trireme::launch {

std::optional<std::string> read_if_there(const std::string& path);
using trireme::walk_cgroups;

}  // namespace trireme::launch
