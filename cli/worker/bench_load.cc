// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_load.h"

#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/cpu_load.h"

namespace trireme::bench {
namespace {

/// CPU seconds of the kernel's threads that move packets when there are many. They are charged to
/// nobody; where a bench goes over a network, what they move is its own.
double packet_thread_seconds() {
  double ticks = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    // "12 (ksoftirqd/0) S ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt ut st"
    if (!std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0]))) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, word;
    if (!(stat >> pid >> name) || name.rfind("(ksoftirqd/", 0) != 0) continue;
    for (int skip = 0; skip < 11; ++skip) stat >> word;
    double user = 0, system = 0;
    if (stat >> user >> system) ticks += user + system;
  }
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double machine_seconds() { return machine_cpu_seconds() - packet_thread_seconds(); }

}  // namespace

LoadMeter::LoadMeter(bool one_process, std::vector<int> hosts)
    : one_process_(one_process),
      hosts_(std::move(hosts)),
      begin_(Clock::now()),
      machine_(machine_seconds()),
      own_(own_cpu_seconds()) {}

Load LoadMeter::stop(Group& world) const {
  const int me = world.rank(), n = world.size();
  const bool counts = !one_process_ || me == 0;
  at::Tensor mine = at::full({1}, counts ? own_cpu_seconds() - own_ : 0, at::kDouble),
             all = at::full({n}, 0, at::kDouble);
  world.all_gather_into_tensor(all, mine).wait();
  const auto* own = static_cast<const double*>(all.data_ptr());
  Load load;
  load.wall = seconds_since(begin_);
  double here = 0;
  for (int r = 0; r < n; ++r) {
    load.own += own[r];
    if (hosts_[static_cast<size_t>(r)] == hosts_[static_cast<size_t>(me)]) here += own[r];
  }
  const double machine = load.wall * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  mine.fill_(std::max(0.0, machine_seconds() - machine_ - here) / machine);
  world.all_reduce(mine, ReduceOp::max).wait();
  load.foreign = mine.item<double>();
  return load;
}

}  // namespace trireme::bench
