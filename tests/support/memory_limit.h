// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/process/cgroup.h"

namespace trireme::testing {

/// A cgroup with a memory limit, of whichever version is there; gone with the object.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t bytes) {
    make("", "memory.max", bytes);
    if (path_.empty()) make("memory", "memory.limit_in_bytes", bytes);
  }
  ~MemoryLimit() {
    for (int i = 0; !path_.empty() && ::rmdir(path_.c_str()) != 0 && i < 1000; ++i) ::usleep(1000);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  const std::string& why() const { return why_; }  // "": it is there
  /// Who writes its pid there is in it, with all that it starts.
  std::string procs() const { return path_ + "/cgroup.procs"; }
  /// What this process frees from here on goes back to the system: earlier tests may have taught
  /// malloc to keep it.
  void enter() const {
    ::mallopt(M_MMAP_THRESHOLD, 1 << 17);
    check<ResourceError>(write(procs(), std::to_string(::getpid())), "cannot enter {}", path_);
  }

 private:
  static bool write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    return static_cast<bool>(file << text << std::flush);
  }
  void make(const std::string& controller, const std::string& file, size_t bytes) {
    walk_cgroups("", controller, [&](const std::string& folder) {
      const std::string path = folder + "/trireme-test-" + std::to_string(::getpid());
      if (::mkdir(path.c_str(), 0755) != 0) {
        why_ = "cannot make a cgroup below " + folder + ": " + errno_text();
        return true;
      }
      auto there = [&] { return ::access((path + "/" + file).c_str(), W_OK) == 0; };
      if (!there() && controller.empty()) write(folder + "/cgroup.subtree_control", "+memory");
      if (there() && write(path + "/" + file, std::to_string(bytes))) {
        path_ = path;
        why_.clear();
        return false;
      }
      ::rmdir(path.c_str());
      return true;
    });
  }

  std::string path_, why_ = "no cgroup with the memory controller";
};

/// Private memory that can be written to, of this process.
inline size_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmData:", 0) == 0) return std::stoul(line.substr(7)) * 1024;
  fail<Error>("no VmData");
}

/// Of this process, from here on: what it has and `room` more (RLIMIT_DATA).
inline void limit_data(size_t room) {
  // This limit counts addresses: every tensor is to be a mapping, and none may lie in a hole that
  // earlier tests left in the heap (which malloc tries first).
  constexpr size_t kMapped = 1 << 17;
  ::mallopt(M_MMAP_THRESHOLD, kMapped);
  static std::vector<std::unique_ptr<char[]>> holes;
  for (const auto before = ::mallinfo2().hblks; ::mallinfo2().hblks == before;)
    holes.push_back(std::make_unique_for_overwrite<char[]>(kMapped));
  const rlim_t bytes = data_bytes() + room;
  const rlimit limit{bytes, bytes};
  const bool fine = ::setrlimit(RLIMIT_DATA, &limit) == 0;
  check<Error>(fine, "setrlimit: {}", errno_text());
}

}  // namespace trireme::testing
