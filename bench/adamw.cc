// SPDX-License-Identifier: Apache-2.0
// One step of AdamW on 100 M float32 parameters: ours against torch::optim::AdamW, and against the
// memory: a loop that reads four streams and writes three of them, as AdamW must, on as many
// threads. Rounds alternate; medians of the ratios. Void at a foreign load above 5 %.
//   cmake --build build/release --target adamw && build/release/bench/adamw [THREADS [ROUNDS]]
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "bench/foreign_load.h"
#include "trireme/base/clock.h"
#include "trireme/optim/optimizer.h"

using namespace trireme;

namespace {

constexpr int64_t kElements = 100'000'000, kTensors = 25;  // of 4 M each

NamedTensors make(uint64_t seed) {
  at::manual_seed(seed);
  NamedTensors list;
  for (int64_t i = 0; i < kTensors; ++i) {
    at::Tensor p = at::randn({kElements / kTensors}).requires_grad_(true);
    p.mutable_grad() = at::randn({kElements / kTensors});
    list.emplace_back(fmt::format("p{}", i), p);
  }
  return list;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

template <class Body>
double seconds_of(const Body& body) {
  const auto begin = Clock::now();
  body();
  return seconds_since(begin);
}

struct Streams {
  std::vector<float> p, g, m, v;
  Streams() : p(kElements, 1), g(kElements, 1e-3f), m(kElements), v(kElements) {}
  void pass() {
    at::parallel_for(0, kElements, 1 << 20, [&](int64_t begin, int64_t end) {
      float* __restrict a = p.data(), * __restrict b = m.data(), * __restrict c = v.data();
      const float* __restrict d = g.data();
      for (int64_t i = begin; i < end; ++i) {
        b[i] += d[i];
        c[i] += d[i];
        a[i] += b[i];
      }
    });
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  at::set_num_threads(threads);
  NamedTensors mine = make(1), theirs = make(1);
  auto ours = make_adamw(mine, {});
  std::vector<at::Tensor> list;
  for (auto& [name, p] : theirs) list.push_back(p);
  torch::optim::AdamW torchs(list, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  Streams streams;
  ours->step(1e-3);
  torchs.step();
  streams.pass();
  std::vector<double> t_ours, t_torch, t_streams, to_torch, to_streams;
  ForeignLoad load;
  for (int r = 0; r < rounds; ++r) {
    t_streams.push_back(seconds_of([&] { streams.pass(); }));
    t_ours.push_back(seconds_of([&] { ours->step(1e-3); }));
    t_torch.push_back(seconds_of([&] { torchs.step(); }));
    to_torch.push_back(t_torch.back() / t_ours.back());
    to_streams.push_back(t_streams.back() / t_ours.back());
  }
  const double foreign = load.part();
  const double bytes = 7.0 * 4 * kElements;
  double most = 0;  // both started alike and took the same steps
  for (size_t i = 0; i < mine.size(); ++i)
    most = std::max(most, (mine[i].second - theirs[i].second).abs().max().item<double>());
  std::printf(
      "AdamW, %.0f M float32 parameters, %d thread%s, %d rounds, medians\n"
      "ours          %7.1f ms  %6.2f GB/s\n"
      "four streams  %7.1f ms  %6.2f GB/s   ours reaches %.0f %% of it\n"
      "torch::optim  %7.1f ms               ours is %.2f x faster   (weights differ by %.1e)\n"
      "foreign load %.1f %%%s\n",
      kElements / 1e6, threads, threads == 1 ? "" : "s", rounds, 1e3 * median(t_ours),
      bytes / median(t_ours) / 1e9, 1e3 * median(t_streams), bytes / median(t_streams) / 1e9,
      100 * median(to_streams), 1e3 * median(t_torch), median(to_torch), most, 100 * foreign,
      foreign > 0.05 ? ": VOID" : "");
  return most < 1e-5 ? 0 : 1;
}
