// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "trireme/base/export.h"

namespace trireme::local {

/// What can still be had of this machine and of the cgroups that this process is in.
struct Room {
  size_t bytes = 0;
  std::string limit;  // what sets it, for a text: "memory.max of /sys/fs/cgroup/job is 67108864"
};

/// Files are looked for under `root`. What the kernel would give up first (files that it keeps in
/// memory) counts as room.
TRIREME_API Room memory_room(const std::string& root = "");

}  // namespace trireme::local
