// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/waiter.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace trireme::local {

// cpu.max of this cgroup and of each above it; no limit where there is no cgroup v2.
double cgroup_cpus() {
  double cpus = 1e9;
  std::ifstream self("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(self, line))
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  while (true) {
    std::ifstream limit("/sys/fs/cgroup" + path + "/cpu.max");
    std::string quota;
    double period = 0;
    if (limit >> quota >> period && quota != "max" && period > 0)
      cpus = std::min(cpus, std::stod(quota) / period);
    auto slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return cpus;
    path.resize(slash);
  }
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
