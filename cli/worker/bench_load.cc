// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_load.h"

#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>

#include "cli/cpu_load.h"

namespace trireme::bench {
LoadMeter::LoadMeter(bool one_process, std::vector<int> hosts)
    : one_process_(one_process),
      hosts_(std::move(hosts)),
      begin_(Clock::now()),
      machine_(machine_cpu_seconds()),
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
  mine.fill_(std::max(0.0, machine_cpu_seconds() - machine_ - here) / machine);
  world.all_reduce(mine, ReduceOp::max).wait();
  load.foreign = mine.item<double>();
  return load;
}

}  // namespace trireme::bench
