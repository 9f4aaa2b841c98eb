// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/facts/read_facts.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "trireme/base/process/cgroup.h"
#include "trireme/base/version.h"
#include "trireme/net/frame.h"

namespace trireme {
namespace {

// Two machines of one kind differ in what their firmware keeps, and disks in what lies on them.
constexpr double kMemoryWithin = 1.1;
constexpr double kDiskWithin = 2;
constexpr size_t kMostOfAFile = size_t{64} << 20;
constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // cgroup v1 writes a number near 2^63 for none

std::string gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

Fact limit_fact(const std::string& name, int resource, bool in_bytes) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {name, "?"};
  if (limit.rlim_cur == RLIM_INFINITY) return {name, "unlimited"};
  const auto value = static_cast<uint64_t>(limit.rlim_cur);
  return {name, in_bytes ? fmt::format("{} KiB", value / 1024) : std::to_string(value)};
}

/// What the machine has, or its cgroup allows.
Fact memory_fact(const std::string& root) {
  uint64_t bytes = 0;
  std::ifstream info(root + "/proc/meminfo");
  for (std::string word; info >> word;)
    if (uint64_t kib = 0; word == "MemTotal:" && info >> kib) bytes = kib << 10;
  for (const auto& [controller, file] :
       {std::pair{"", "memory.max"}, {"memory", "memory.limit_in_bytes"}})
    walk_cgroups(root, controller, [&, name = file](const std::string& folder) {
      std::ifstream in(folder + "/" + name);
      if (uint64_t limit = 0;
          in >> limit && limit > 0 && limit < kNoLimit && (bytes == 0 || limit < bytes))
        bytes = limit;
      return true;
    });
  return {"memory", gib(static_cast<double>(bytes)), false, kMemoryWithin,
          static_cast<double>(bytes)};
}

struct Disk {
  double size = 0, free = 0;
};
std::optional<Disk> disk_at(std::string path) {
  struct statvfs at {};
  // What is to be made there is not there yet.
  while (::statvfs(path.c_str(), &at) != 0) {
    const std::string above = std::filesystem::path(path).parent_path().string();
    if (above.empty() || above == path) return std::nullopt;
    path = above;
  }
  const auto unit = static_cast<double>(at.f_frsize);
  return Disk{static_cast<double>(at.f_blocks) * unit, static_cast<double>(at.f_bavail) * unit};
}

}  // namespace

std::vector<Fact> read_facts(const std::string& folder, const std::string& root) {
  std::vector<Fact> facts;
  facts.push_back({"Trireme", version(), true});
  facts.push_back({"control protocol", std::to_string(net::kFrameVersion), true});
  facts.push_back(limit_fact("open files (ulimit -n)", RLIMIT_NOFILE, false));
  facts.push_back(limit_fact("locked memory (ulimit -l)", RLIMIT_MEMLOCK, true));
  facts.push_back(memory_fact(root));
  if (const auto shm = disk_at(root + "/dev/shm"))
    facts.push_back({"/dev/shm", gib(shm->size), false, kMemoryWithin, shm->size});
  else
    facts.push_back({"/dev/shm", "none", false, kMemoryWithin, 0});
  if (folder.empty()) return facts;
  if (const auto disk = disk_at(folder))
    facts.push_back({"free for " + folder, gib(disk->free), false, kDiskWithin, disk->free});
  return facts;
}

Fact file_fact(const std::string& name, const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return {name, "not there"};
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes(std::min<size_t>(size, kMostOfAFile));
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto got = static_cast<size_t>(in.gcount());
  return {name, fmt::format("{} bytes, {:016x}", size, XXH3_64bits(bytes.data(), got))};
}

}  // namespace trireme
