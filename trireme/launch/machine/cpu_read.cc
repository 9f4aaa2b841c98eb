// SPDX-License-Identifier: Apache-2.0
// The reading half of cpu.h: affinity, topology, /proc/cpuinfo, cgroups.
#include <sched.h>

#include <filesystem>
#include <map>
#include <string>

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/machine/cpu.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::launch {
namespace {

int read_int(const std::string& path, int otherwise) {
  auto text = read_if_there(path);
  if (!text) return otherwise;
  auto value = parse_int(trim(*text));
  return value ? static_cast<int>(*value) : otherwise;
}

std::optional<double> quota_v2(const std::string& folder) {
  auto text = read_if_there(folder + "/cpu.max");
  if (!text) return std::nullopt;
  auto fields = split(trim(*text), ' ');
  if (fields.size() != 2) return std::nullopt;
  double quota = parse_number(fields[0]).value_or(0);  // "max 100000": no quota
  double period = parse_number(fields[1]).value_or(0);
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const std::string& folder) {
  int quota = read_int(folder + "/cpu.cfs_quota_us", -1);
  int period = read_int(folder + "/cpu.cfs_period_us", -1);
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / period;
}

// The kernel shows the node of a CPU as a link "node1" in its folder.
int node_of(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    if (const auto node = parse_int(std::string_view(name).substr(4)))
      return static_cast<int>(*node);
  }
  return 0;
}

// "0-7,16-23"; "": the kernel shows no caches.
std::string sharers_of_last_cache(const std::string& folder) {
  std::string sharers;
  int last = 0;
  for (int i = 0; i < 16; ++i) {
    const std::string cache = folder + "/cache/index" + std::to_string(i) + "/";
    const int level = read_int(cache + "level", 0);
    if (level == 0) break;
    if (level <= last) continue;
    last = level;
    sharers = trim(read_if_there(cache + "shared_cpu_list").value_or(""));
  }
  return sharers;
}

}  // namespace

std::vector<int> inherited_affinity() {
  // The kernel refuses a mask smaller than its own: double until it fits.
  for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(bits));
    size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(bits));
    CPU_ZERO_S(bytes, set);
    int result = ::sched_getaffinity(0, bytes, set);
    std::vector<int> cpus;
    for (int i = 0; result == 0 && i < bits; ++i)
      if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) cpus.push_back(i);
    CPU_FREE(set);
    if (result == 0) return cpus;
    if (errno != EINVAL) break;
  }
  fail<ResourceError>("cannot read the CPU affinity of this process: {}", errno_text());
}

std::vector<Cpu> read_cpus(const std::string& sys) {
  std::vector<Cpu> cpus;
  std::map<std::string, int> caches;  // by the CPUs that share one
  for (int id : inherited_affinity()) {
    const std::string folder = sys + "/cpu" + std::to_string(id), topology = folder + "/topology/";
    Cpu cpu;
    cpu.id = id;
    cpu.package = read_int(topology + "physical_package_id", 0);
    // Unknown: a core that no other CPU shares.
    cpu.core = read_int(topology + "core_id", (1 << 24) + id);
    cpu.node = node_of(folder);
    std::string sharers = sharers_of_last_cache(folder);
    if (sharers.empty()) sharers = "package " + std::to_string(cpu.package);
    cpu.cache = caches.emplace(sharers, static_cast<int>(caches.size())).first->second;
    cpus.push_back(cpu);
  }
  return cpus;
}

CpuModel parse_cpuinfo(std::string_view text) {
  CpuModel cpu;
  for (auto line : split(text, '\n')) {
    auto colon = line.find(':');
    if (colon == std::string_view::npos) {
      if (!cpu.vendor.empty() && trim(line).empty()) break;  // the next processor
      continue;
    }
    auto key = trim(line.substr(0, colon)), value = trim(line.substr(colon + 1));
    if (key == "vendor_id") cpu.vendor = value;
    if (key == "model name") cpu.name = value;
    if (key == "cpu family") cpu.family = static_cast<int>(parse_int(value).value_or(0));
    if (key == "model") cpu.model = static_cast<int>(parse_int(value).value_or(0));
    if (key == "flags" || key == "Features")
      for (auto flag : split(value, ' ')) cpu.flags.emplace(flag);
  }
  return cpu;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> least;
  auto take = [&least](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
    return true;
  };
  walk_cgroups(root, "", [&](const std::string& folder) { return take(quota_v2(folder)); });
  walk_cgroups(root, "cpu", [&](const std::string& folder) { return take(quota_v1(folder)); });
  return least;
}

}  // namespace trireme::launch
