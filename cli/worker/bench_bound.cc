// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/bench_bound.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cli/worker/bench_plan.h"
#include "trireme/base/clock.h"
#include "trireme/comm/local/copy.h"
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

using bench::Op;

/// One rank's loads and stores; in[q], out[q] are rank q's.
void touch(Op op, int rank, int ranks, const bench::Shape& shape, const std::vector<float*>& in,
           const std::vector<float*>& out, bool streamed) {
  const auto n = static_cast<size_t>(ranks), r = static_cast<size_t>(rank);
  const auto count = static_cast<size_t>(shape.count);
  auto copy = [streamed](float* to, const float* from, size_t elements) {
    local::copy_block(to, from, elements * 4, streamed);
  };
  auto sum = [&](const std::vector<void*>& at, void* const* to, int copies, size_t elements) {
    local::reduce(local::DType::f32, ReduceOp::sum, at.data(), ranks, to, copies, elements);
  };
  std::vector<void*> at(n);
  switch (op) {
    case Op::all_reduce: {
      const local::Range chunk = local::chunk_of(count, 4, ranks, rank);
      for (size_t q = 0; q < n; ++q) at[q] = in[q] + chunk.begin;
      return sum(at, at.data(), ranks, chunk.size());
    }
    case Op::reduce_scatter: {
      for (size_t q = 0; q < n; ++q) at[q] = in[q] + r * count;
      void* to[1] = {out[r]};
      return sum(at, to, 1, count);
    }
    case Op::all_gather:
      for (size_t i = 0; i < n; ++i) copy(out[r] + (r + i) % n * count, in[(r + i) % n], count);
      return;
    case Op::all_to_all:
      for (size_t i = 0; i < n; ++i) {
        const size_t q = (r + i) % n;
        copy(out[r] + q * count, in[q] + r * count, count);
      }
      return;
    default: {  // broadcast from rank 0, which takes the first chunk of each copy
      const size_t first = local::chunk_of(count, 4, ranks, 0).size();
      for (size_t q = 1; q < n && r == 0; ++q) copy(in[q], in[0], first);
      if (r) copy(in[r] + first, in[0] + first, count - first);
    }
  }
}

double timed(Op op, int ranks, const bench::Shape& shape, int calls, bool streamed) {
  const auto n = static_cast<size_t>(ranks);
  auto room = [](int64_t elements) {
    return local::round_up(static_cast<size_t>(elements) * 4, 4096);
  };
  std::vector<float*> in, out;
  for (size_t r = 0; r < n; ++r)
    for (auto* list : {&in, &out})
      list->push_back(
          static_cast<float*>(::mmap(nullptr, room(list == &in ? shape.in : shape.out),
                                     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  std::vector<std::vector<double>> times(n);
  Barrier barrier{{}, {}, ranks};
  auto body = [&](int rank) {
    pin_to(rank);
    const auto r = static_cast<size_t>(rank);
    for (int call = 0; call < calls + 1; ++call) {
      for (int64_t i = 0; i < shape.in; ++i) in[r][i] = static_cast<float>(rank + call);
      barrier.wait();
      const auto begin = Clock::now();
      touch(op, rank, ranks, shape, in, out, streamed);
      if (call) times[r].push_back(seconds_since(begin));  // the first one meets new pages
      barrier.wait();
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  for (size_t r = 0; r < n; ++r) {
    ::munmap(in[r], room(shape.in));
    ::munmap(out[r], room(shape.out));
  }
  std::vector<double> slowest;
  for (size_t c = 0; c < static_cast<size_t>(calls); ++c) {
    double s = 0;
    for (auto& t : times) s = std::max(s, t[c]);
    slowest.push_back(s);
  }
  return bench::median(slowest);
}

}  // namespace

bool has_bound(Op op) {
  return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::all_gather ||
         op == Op::all_to_all || op == Op::broadcast;
}

double bound_of(Op op, int ranks, const bench::Shape& shape, int calls) {
  const double cached = timed(op, ranks, shape, calls, false);
  if (op == Op::all_reduce || op == Op::reduce_scatter) return cached;
  return std::min(cached, timed(op, ranks, shape, calls, true));
}

}  // namespace trireme
