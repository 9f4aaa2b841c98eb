// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/waiter.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "trireme/base/process/cgroup.h"

namespace trireme::local {

double cgroup_cpus(const std::string& root) {
  double cpus = 1e9;
  walk_cgroups(root, "", [&](const std::string& folder) {
    std::ifstream limit(folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (limit >> quota >> period && quota != "max" && period > 0)
      cpus = std::min(cpus, std::stod(quota) / period);
    return true;
  });
  walk_cgroups(root, "cpu", [&](const std::string& folder) {
    std::ifstream of_quota(folder + "/cpu.cfs_quota_us"), of_period(folder + "/cpu.cfs_period_us");
    double quota = 0, period = 0;
    if (of_quota >> quota && of_period >> period && quota > 0 && period > 0)
      cpus = std::min(cpus, quota / period);
    return true;
  });
  return cpus;
}

void read_cpu_mask(uint64_t (&mask)[16]) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::fill(std::begin(mask), std::end(mask), 0);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) mask[cpu / 64] |= uint64_t{1} << (cpu % 64);
}

}  // namespace trireme::local
