// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "trireme/base/export.h"

namespace trireme::local {

/// The memory still available on this machine and in this process's cgroups.
struct Room {
  size_t bytes = 0;
  std::string limit;  // what limits it: "memory.max of /sys/fs/cgroup/job is 67108864"
};

/// Files are read below `root`. Memory that the kernel would reclaim first (cached files) counts as
/// available.
TRIREME_API Room memory_room(const std::string& root = "");

}  // namespace trireme::local
