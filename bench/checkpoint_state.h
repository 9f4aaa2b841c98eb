// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/foreign_load.h"
#include "trireme/base/clock.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

// What the benches of checkpoints share: a state as large as is asked for, and figures.
namespace trireme::bench {

constexpr int64_t kMiB = int64_t{1} << 20;

/// float32 tensors of 16 MiB: `replicated`, every rank holds all of them, else each rank its share
/// of each, as ZeRO-3 has it.
class BenchState {
 public:
  BenchState(int64_t mib, int rank, int ranks, bool replicated, float value) {
    const int64_t rows = 2048, columns = 2048, pieces = replicated ? 1 : ranks;
    for (int64_t i = 0; i < mib / 16; ++i) {
      const int64_t numel = rows * columns, share = numel / pieces;
      const std::string name = fmt::format("model.blocks.{}.weight", i);
      slices.push_back(replicated ? Slice::whole(name, {rows, columns})
                                  : Slice::range(name, {rows, columns}, share * rank, share));
      tensors.push_back(at::full(slices.back().local_shape(), value + static_cast<float>(i)));
      bytes += share * 4;
    }
  }
  void operator()(StateVisitor& v) {
    for (size_t i = 0; i < slices.size(); ++i) v.tensor(slices[i], tensors[i]);
  }
  void zero() {
    for (at::Tensor& t : tensors) t.zero_();
  }
  bool has(float value) const {
    bool all = true;
    for (size_t i = 0; i < tensors.size(); ++i)
      all = all && tensors[i].view({-1})[-1].item<float>() == value + static_cast<float>(i);
    return all;
  }

  std::vector<Slice> slices;
  std::vector<at::Tensor> tensors;
  int64_t bytes = 0;  // of this rank
};

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Taken {
  double wall = 0, cpu = 0;  // seconds; of all ranks, which are threads of this process
};

inline double process_cpu() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/// From when all ranks begin until all have done it.
inline Taken together(Group& group, const std::function<void()>& body) {
  group.barrier();
  const auto begin = Clock::now();
  const double cpu = process_cpu();
  body();
  group.barrier();
  return {seconds_since(begin), process_cpu() - cpu};
}

/// Of two figures in alternating rounds.
struct Pairs {
  std::vector<double> ours, theirs, our_cpu, their_cpu;
  void add(Taken our, Taken their) {
    ours.push_back(our.wall), our_cpu.push_back(our.cpu);
    theirs.push_back(their.wall), their_cpu.push_back(their.cpu);
  }
  std::vector<double> ratios() const {
    std::vector<double> all;
    for (size_t i = 0; i < ours.size(); ++i) all.push_back(ours[i] / theirs[i]);
    return all;
  }
  /// "0.123 s (CPU 0.100), … 0.110 s (CPU 0.100); ratio 1.12 [1.05, 1.20]"
  std::string text(const char* peer) const {
    const auto r = ratios();
    auto one = [](const std::vector<double>& wall, const std::vector<double>& cpu) {
      const std::string text = fmt::format("{:.3f} s", median(wall));
      return median(cpu) > 0 ? text + fmt::format(" (CPU {:.3f})", median(cpu)) : text;
    };
    return fmt::format("{}, {} {}; ratio {:.2f} [{:.2f}, {:.2f}]", one(ours, our_cpu), peer,
                       one(theirs, their_cpu), median(r), *std::min_element(r.begin(), r.end()),
                       *std::max_element(r.begin(), r.end()));
  }
};

inline std::string verdict(double foreign) {
  return fmt::format("foreign load {:.1f} %{}", 100 * foreign, foreign > 0.05 ? ": VOID" : "");
}

/// Threads of each rank, so that all ranks' are as many as the process may use cores.
inline int threads_of_rank(int ranks) {
  const int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, cores / ranks);
}

}  // namespace trireme::bench
