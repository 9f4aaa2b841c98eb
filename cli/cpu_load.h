// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

// CPU time as the kernel accounts it, to tell whether others used this machine meanwhile.
namespace trireme {

/// Busy CPU seconds of the whole machine since boot, of everybody; in ticks of 10 ms a CPU.
inline double machine_cpu_seconds() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  stat >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq;
  return (user + nice + system + irq + softirq) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// Of this process (RUSAGE_SELF), or of those of its children that have ended (RUSAGE_CHILDREN).
inline double own_cpu_seconds(__rusage_who who = RUSAGE_SELF) {
  rusage u{};
  ::getrusage(who, &u);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

}  // namespace trireme
