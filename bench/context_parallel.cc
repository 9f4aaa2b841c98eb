// SPDX-License-Identifier: Apache-2.0
// Rows of 8,192 tokens whose positions two processes divide, against one process with one thread:
// attention alone (12 heads, 4 key/value heads), and a step of a GPT of width 384 with its
// gradients added over the two. Every kind runs in every round, in turn, in the same two processes,
// each on a CPU of its own; times are medians. "Kept" is what a forward keeps for its backward. The
// bound of a time is 2, and that of what is kept 0.5. Void while others use the machine, and the
// load says so.
//   cmake --build build/release --target context_parallel
//   build/release/bench/context_parallel [ROUNDS] [TOKENS]
#include "trireme/layers/context_parallel/context_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <dlfcn.h>
#include <sched.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"
#include "trireme/layers/attention.h"
#include "trireme/models/parallel_gpt.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/random/random.h"

using namespace trireme;

namespace {

constexpr int64_t kHeads = 12, kKvHeads = 4, kHeadWidth = 32;

struct Kind {
  std::string name;
  bool both;                   // processes compute; else rank 0 alone
  std::function<void()> step;  // sets `kept`, if it is counted
  std::shared_ptr<int64_t> kept = std::make_shared<int64_t>(0);
  std::vector<double> seconds = {};
};

// A CPU and a thread for each rank; the BLAS has threads of its own.
void pin(int rank) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(rank), &cpus);
  if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) std::perror("sched_setaffinity");
  at::set_num_threads(1);
  if (auto* set =
          reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(1);
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void measure(Group g, std::vector<Kind>& kinds, int rounds) {
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (Kind& kind : kinds) {
      const bool mine = kind.both || g.rank() == 0;
      g.barrier();
      const auto begin = Clock::now();
      if (mine) kind.step();
      at::Tensor longest = at::full({1}, mine ? seconds_since(begin) : 0, at::kDouble);
      g.all_reduce(longest, ReduceOp::max).wait();
      if (round >= 0) kind.seconds.push_back(longest.item<double>());
    }
}

void print(const std::vector<Kind>& kinds) {
  for (const Kind& kind : kinds) {
    std::printf("  %-26s %9.1f ms  %5.2f x (bound %d)", kind.name.c_str(),
                1e3 * median(kind.seconds), median(kinds[0].seconds) / median(kind.seconds),
                kind.both ? 2 : 1);
    if (*kind.kept > 0)
      std::printf("  kept %7.1f MiB, %.2f (bound %.1f)", static_cast<double>(*kind.kept) / 1048576,
                  static_cast<double>(*kind.kept) / static_cast<double>(*kinds[0].kept),
                  kind.both ? 0.5 : 1.0);
    std::printf("\n");
  }
}

const std::pair<const char*, ContextMethod> kMethods[] = {
    {"ring", ContextMethod::ring},
    {"all_gather", ContextMethod::gather},
    {"all_to_all", ContextMethod::all_to_all}};

void attention_alone(Group g, int rounds, int64_t tokens) {
  torch::manual_seed(1);
  const auto random = [&](int64_t heads) {
    return at::randn({1, tokens, heads, kHeadWidth}).requires_grad_(true);
  };
  const at::Tensor q = random(kHeads), k = random(kKvHeads), v = random(kKvHeads),
                   gradient = at::randn(q.sizes());
  std::vector<Kind> kinds;
  kinds.push_back({"one process", false, [&] { attention(q, k, v).out.backward(gradient); }});
  for (const auto& [name, method] : kMethods) {
    const ContextParallel cp(g, {.method = method});
    const auto own = [&](const at::Tensor& t) {
      return cp.own(t.detach()).clone().requires_grad_(true);
    };
    kinds.push_back({std::string("cp=2, ") + name, true,
                     [=, own_q = own(q), own_k = own(k), own_v = own(v), own_g = own(gradient)] {
                       context_attention(own_q, own_k, own_v, {}, cp, tokens).backward(own_g);
                     }});
  }
  measure(g, kinds, rounds);
  if (g.rank() != 0) return;
  std::printf("attention over %ld tokens, %ld heads of %ld, %ld key/value heads; %d rounds\n",
              static_cast<long>(tokens), static_cast<long>(kHeads), static_cast<long>(kHeadWidth),
              static_cast<long>(kKvHeads), rounds);
  print(kinds);
}

void gpt(Group g, int rounds, int64_t tokens) {
  ParallelGptOptions options;
  options.layers = 2;
  options.context = tokens;
  torch::manual_seed(1);
  const at::Tensor ids = at::randint(256, {1, tokens}, at::kLong),
                   target = at::randint(256, {1, tokens}, at::kLong);
  const auto step = [=](ParallelGpt& model, int64_t& kept) {
    const RandomScope random({42, 0, {0}});
    at::Tensor loss;
    {
      const LiveBytes live;
      loss = model.loss_sum(model.forward(ids), target).div(static_cast<double>(tokens));
      kept = live.now();
    }
    loss.backward();
    at::NoGradGuard no_grad;
    for (const auto& p : model.parameters()) {
      at::Tensor(p).sub_(p.grad(), 1e-3);
      p.grad().zero_();
    }
  };
  std::vector<Kind> kinds;
  const auto whole = std::make_shared<ParallelGpt>(TensorParallel::alone(), options, 1);
  kinds.push_back({"one process", false, {}});
  kinds[0].step = [=, kept = kinds[0].kept] { step(*whole, *kept); };
  std::vector<std::shared_ptr<DistributedDataParallel>> sums;
  for (const auto& [name, method] : kMethods) {
    const auto model = std::make_shared<ParallelGpt>(
        TensorParallel::alone(), options, 1, UnitMade(), ContextParallel(g, {.method = method}));
    sums.push_back(std::make_shared<DistributedDataParallel>(*model, g));
    kinds.push_back({std::string("cp=2, ") + name, true, {}});
    kinds.back().step = [=, kept = kinds.back().kept] { step(*model, *kept); };
  }
  measure(g, kinds, rounds);
  if (g.rank() != 0) return;
  std::printf("a step of a GPT, %ld blocks of width %ld, %ld tokens; %d rounds\n",
              static_cast<long>(options.layers), static_cast<long>(options.width),
              static_cast<long>(tokens), rounds);
  print(kinds);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const int64_t tokens = argc > 2 ? std::max(64, std::atoi(argv[2])) : 8192;
  SpawnOptions options;
  options.args = {std::to_string(rounds), std::to_string(tokens)};
  spawn(
      2,
      [&](Group g) {
        pin(g.rank());
        attention_alone(g, rounds, tokens);
        gpt(g, rounds, tokens);
        double load = 0;
        getloadavg(&load, 1);
        if (g.rank() == 0) std::printf("load %.2f\n", load);
      },
      options);
  return 0;
}
