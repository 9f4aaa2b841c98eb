// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/host_memory.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <fstream>

#include "trireme/base/process/cgroup.h"
#include "trireme/comm/local/host/memory_room.h"

namespace trireme {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;  // cgroup v1 writes a number near 2^63 for none

}  // namespace

HostMemory host_memory(const std::string& root) {
  HostMemory host;
  std::ifstream info(root + "/proc/meminfo");
  int64_t kib = 0;
  for (std::string word; info >> word;)
    if ((word == "MemTotal:" || word == "SwapTotal:") && info >> kib) host.capacity += kib << 10;
  auto look = [&](const std::string& controller, const char* file) {
    walk_cgroups(root, controller, [&](const std::string& folder) {
      int64_t bytes = 0;
      std::ifstream limit(folder + "/" + file);
      if (limit >> bytes && bytes > 0 && bytes < kNoLimit &&
          (host.capacity == 0 || bytes < host.capacity)) {
        host.capacity = bytes;
        host.limit = fmt::format("this cgroup ({}/{})", folder, file);
      }
      return true;
    });
  };
  look("", "memory.max");
  look("memory", "memory.limit_in_bytes");
  host.available = static_cast<int64_t>(local::memory_room(root).bytes);
  for (auto [resource, name] : {std::pair{RLIMIT_AS, "ulimit -v"}, {RLIMIT_DATA, "ulimit -d"}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    const auto bytes = static_cast<int64_t>(limit.rlim_cur);
    if (host.process_limit > 0 && bytes >= host.process_limit) continue;
    host.process_limit = bytes;
    host.process_limit_name = name;
  }
  return host;
}

std::string memory_advice(const MemoryPlan& plan) {
  std::string text = "Take a smaller model or train_micro_batch_size_per_gpu";
  if (plan.sharding.stage < 3 && plan.degrees.pp == 1)
    text += ", zero_optimization.stage=3 over more hosts";
  if (!plan.question.states_on_disk) text += ", offload_optimizer to a disk";
  if (plan.question.snapshot_bytes > 0)
    text += ", checkpoint.async=false and checkpoint.snapshot_every=0";
  return text;
}

}  // namespace trireme
