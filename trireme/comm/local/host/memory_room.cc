// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/host/memory_room.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "trireme/base/process/cgroup.h"

namespace trireme::local {
namespace {

/// Reads the number in a file; false if there is none ("max").
bool read_number(const std::string& path, size_t& value) {
  std::ifstream file(path);
  return static_cast<bool>(file >> value);
}

/// A cgroup's cached files count as its memory until it needs that; those in use count half, as the
/// kernel counts them for the machine.
size_t reclaimable(const std::string& folder, const std::string& prefix) {
  size_t bytes = 0, value = 0;
  std::ifstream file(folder + "/memory.stat");
  for (std::string name; file >> name >> value;) {
    if (name == prefix + "inactive_file") bytes += value;
    if (name == prefix + "active_file") bytes += value / 2;
  }
  return bytes;
}

}  // namespace

Room memory_room(const std::string& root) {
  Room room{
      static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE)),
      "this machine has no more"};
  std::ifstream info(root + "/proc/meminfo");
  size_t kib = 0;
  for (std::string word; info >> word;)
    if (word == "MemAvailable:" && info >> kib) {
      room.bytes = kib << 10;
      break;
    }
  auto look = [&](const std::string& controller, const char* limit, const char* used,
                  const char* prefix) {
    walk_cgroups(root, controller, [&](const std::string& folder) {
      size_t most = 0, now = 0;
      if (!read_number(folder + "/" + limit, most) || !read_number(folder + "/" + used, now))
        return true;
      const size_t taken = now - std::min(now, reclaimable(folder, prefix));
      const size_t left = most - std::min(most, taken);
      if (left < room.bytes) room = {left, fmt::format("{} of {} is {}", limit, folder, most)};
      return true;
    });
  };
  look("", "memory.max", "memory.current", "");
  look("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_");
  return room;
}

}  // namespace trireme::local
