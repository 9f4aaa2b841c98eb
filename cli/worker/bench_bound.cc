// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_bound.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cli/worker/bench_plan.h"
#include "trireme/base/clock.h"
#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/comm/local/split_plan.h"
#include "trireme/comm/local/waiter.h"

namespace trireme {
namespace {

// All CPUs of the machine, whatever this rank is bound to: the bound's threads stand for all ranks.
void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu % static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

struct Barrier {
  std::atomic<int> arrived{0};
  std::atomic<int> phase{0};
  int n;
  void wait() {
    const int mine = phase.load();
    if (arrived.fetch_add(1) + 1 == n) {
      arrived = 0;
      phase.fetch_add(1);
      return;
    }
    while (phase.load() == mine) local::cpu_relax();
  }
};

}  // namespace

double all_reduce_bound(int ranks, int64_t count, int calls) {
  const auto n = static_cast<size_t>(ranks);
  const size_t bytes = local::round_up(static_cast<size_t>(count) * 4, 4096);
  std::vector<void*> buffers;
  for (size_t r = 0; r < n; ++r)
    buffers.push_back(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<std::vector<double>> times(n);
  Barrier barrier{{}, {}, ranks};
  auto body = [&](int rank) {
    pin_to(rank);
    const auto r = static_cast<size_t>(rank);
    auto* mine = static_cast<float*>(buffers[r]);
    const local::Range chunk = local::chunk_of(static_cast<size_t>(count), 4, ranks, rank);
    std::vector<void*> at(n);
    for (size_t q = 0; q < n; ++q) at[q] = static_cast<float*>(buffers[q]) + chunk.begin;
    for (int call = 0; call < calls; ++call) {
      for (int64_t i = 0; i < count; ++i) mine[i] = static_cast<float>(rank + call);
      barrier.wait();
      const auto begin = Clock::now();
      local::reduce(local::DType::f32, local::RedOp::sum, at.data(), ranks, at.data(), ranks,
                    chunk.size());
      times[r].push_back(seconds_since(begin));
      barrier.wait();
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  for (void* b : buffers) ::munmap(b, bytes);
  std::vector<double> slowest;
  for (size_t c = 0; c < static_cast<size_t>(calls); ++c) {
    double s = 0;
    for (auto& t : times) s = std::max(s, t[c]);
    slowest.push_back(s);
  }
  return bench::median(slowest);
}

}  // namespace trireme
