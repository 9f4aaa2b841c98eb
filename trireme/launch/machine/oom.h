// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

namespace trireme::launch {

/// The kernel's count of processes killed for memory: of this process's cgroup (v2 memory.events,
/// v1 memory.oom_control) where it can be read, else of the machine (/proc/vmstat).
struct OomCount {
  int64_t kills = 0;
  std::string where;  // the file it is from; "": none could be read
  std::string limit;  // "512 MiB"; "" where there is none
};
/// `root` is put before /proc and /sys, for tests.
TRIREME_API OomCount read_oom_count(const std::string& root = "");
/// A clause for the error block when the count has risen, else "".
TRIREME_API std::string oom_note(const OomCount& before, const OomCount& after);

}  // namespace trireme::launch
