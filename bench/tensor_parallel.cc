// SPDX-License-Identifier: Apache-2.0
// A GPT of width 384 divided over two processes, against one process with one thread and with two,
// and against two data-parallel processes at the same global batch; and a head with its loss over a
// vocabulary of 32,000. Every kind runs in every round, in turn, in the same two processes; times
// are medians, CPU seconds those of both processes together. "No communication" is the same
// computation on a group that moves no data: the bound, and what is exposed is the difference to
// it. Void while others use the machine, and the load says so.
//   cmake --build build/release --target tensor_parallel
//   build/release/bench/tensor_parallel [ROUNDS] [BATCH]
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"
#include "trireme/layers/tensor_parallel/gradients.h"
#include "trireme/models/gpt.h"
#include "trireme/models/parallel_gpt.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/random/random.h"

using namespace trireme;

namespace {

constexpr int64_t kVocabulary = 32000, kWidth = 384, kRows = 1024;

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// The BLAS has threads of its own.
void set_threads(int n) {
  at::set_num_threads(n);
  if (auto* set =
          reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(n);
}
void run_on(int first, int count) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int i = 0; i < count; ++i) CPU_SET(static_cast<size_t>(first + i), &cpus);
  if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) std::perror("sched_setaffinity");
}

struct Kind {
  std::string name;
  bool both;    // processes compute; else rank 0 alone
  int threads;  // of each
  std::function<void()> step;
  std::vector<double> seconds, cpu;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void measure(Group g, std::vector<Kind>& kinds, int rounds) {
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (Kind& kind : kinds) {
      const bool mine = kind.both || g.rank() == 0;
      run_on(kind.both ? g.rank() : 0, kind.threads);
      set_threads(kind.threads);
      g.barrier();
      const double cpu = cpu_seconds();
      const auto begin = Clock::now();
      if (mine) kind.step();
      const double taken = seconds_since(begin);
      at::Tensor used = at::zeros({1}, at::kDouble);
      if (mine) used[0] = cpu_seconds() - cpu;
      at::Tensor longest = at::full({1}, taken, at::kDouble);
      if (!mine) longest[0] = 0;
      g.all_reduce(used).wait();
      g.all_reduce(longest, ReduceOp::max).wait();
      if (round < 0) continue;
      kind.seconds.push_back(longest.item<double>());
      kind.cpu.push_back(used.item<double>());
    }
}

double time_of(const std::vector<Kind>& kinds, const std::string& name) {
  for (const Kind& kind : kinds)
    if (kind.name == name) return median(kind.seconds);
  return 0;
}

void print(const std::vector<Kind>& kinds) {
  const double alone = median(kinds[0].seconds);
  for (const Kind& kind : kinds)
    std::printf("  %-34s %8.1f ms  %5.2f x  %6.2f CPU s\n", kind.name.c_str(),
                1e3 * median(kind.seconds), alone / median(kind.seconds), median(kind.cpu));
}

void sgd(const torch::nn::Module& model, double rate) {
  at::NoGradGuard no_grad;
  for (const auto& p : model.parameters())
    if (p.grad().defined()) {
      at::Tensor(p).sub_(p.grad(), rate);
      p.grad().zero_();
    }
}

void gpt(Group g, Group silent, int rounds, int64_t batch) {
  ParallelGptOptions options;
  torch::manual_seed(1);
  const at::Tensor ids = at::randint(256, {batch, options.context}, at::kLong),
                   target = at::randint(256, {batch, options.context}, at::kLong);
  const double tokens = static_cast<double>(ids.numel());
  std::vector<int64_t> samples(static_cast<size_t>(batch));
  std::iota(samples.begin(), samples.end(), 0);

  const auto whole = std::make_shared<Gpt>(options, 1);
  const auto replica = std::make_shared<Gpt>(options, 1);
  DistributedDataParallel ddp(*replica, g);
  const auto plain = [&](Gpt& model, const at::Tensor& in, const at::Tensor& out,
                         std::vector<int64_t> ids_of_samples) {
    const RandomScope random({42, 0, std::move(ids_of_samples)});
    model.loss_sum(model.forward(in), out).div(tokens).backward();
    sgd(model, 1e-3);
  };
  const auto divided = [&](Group group, bool sequence) {
    const TensorParallel tp(group, {.sequence_parallel = sequence});
    auto model = std::make_shared<ParallelGpt>(tp, options, 1);
    return [=] {
      const RandomScope random({42, 0, samples});
      model->loss_sum(model->forward(ids), target).div(tokens).backward();
      add_shared_gradients(*model, tp);
      sgd(*model, 1e-3);
    };
  };
  const auto half = [&](const at::Tensor& t) { return t.chunk(2)[g.rank()].contiguous(); };
  const std::vector<int64_t> own(samples.begin() + g.rank() * batch / 2,
                                 samples.begin() + (g.rank() + 1) * batch / 2);
  std::vector<Kind> kinds;
  kinds.push_back(
      {"one process, one thread", false, 1, [&] { plain(*whole, ids, target, samples); }, {}, {}});
  kinds.push_back(
      {"one process, two threads", false, 2, [&] { plain(*whole, ids, target, samples); }, {}, {}});
  kinds.push_back(
      {"dp=2", true, 1, [&] { plain(*replica, half(ids), half(target), own); }, {}, {}});
  kinds.push_back({"tp=2", true, 1, divided(g, false), {}, {}});
  kinds.push_back({"tp=2, no communication", true, 1, divided(silent, false), {}, {}});
  kinds.push_back({"tp=2, sequence_parallel", true, 1, divided(g, true), {}, {}});
  measure(g, kinds, rounds);
  if (g.rank() != 0) return;
  std::printf("GPT, %ld blocks of width %ld, %ld x %ld tokens, dropout %g; %d rounds\n",
              static_cast<long>(options.layers), static_cast<long>(options.width),
              static_cast<long>(batch), static_cast<long>(options.context), options.dropout,
              rounds);
  print(kinds);
  const double tp = time_of(kinds, "tp=2"), none = time_of(kinds, "tp=2, no communication");
  for (const char* other : {"one process, one thread", "one process, two threads", "dp=2"})
    std::printf("  tp=2 is %.2f x %s (bound without communication %.2f)\n",
                time_of(kinds, other) / tp, other, time_of(kinds, other) / none);
  std::printf("  exposed communication %.1f %% (bound 0)\n", 100 * (tp - none) / tp);
}

void head(Group g, Group silent, int rounds) {
  torch::manual_seed(2);
  const at::Tensor x = at::randn({kRows, kWidth}).requires_grad_(true);
  const at::Tensor weight = at::randn({kVocabulary, kWidth}).mul_(0.02).requires_grad_(true);
  const at::Tensor target = at::randint(kVocabulary, {kRows}, at::kLong);
  const at::Tensor part = weight.detach().chunk(2)[g.rank()].clone().requires_grad_(true);
  int64_t peaks[3] = {0, 0, 0};
  // Gradients go as they come, as they do into their bucket in training.
  const auto forget = [&] {
    for (const at::Tensor& t : {x, weight, part}) at::Tensor(t).mutable_grad() = at::Tensor();
  };
  std::vector<Kind> kinds;
  kinds.push_back({"head and loss, one process",
                   false,
                   1,
                   [&] {
                     LiveBytes live;
                     at::cross_entropy_loss(at::linear(x, weight), target).backward();
                     peaks[0] = live.peak();
                     forget();
                   },
                   {},
                   {}});
  const auto divided = [&](Group group, int64_t& peak) {
    return [&, tp = TensorParallel(group)] {
      LiveBytes live;
      vocab_parallel_cross_entropy(column_parallel_linear(x, part, {}, tp), target, kVocabulary, tp)
          .backward();
      peak = live.peak() + static_cast<int64_t>(x.nbytes());  // dx, the group's
      forget();
    };
  };
  kinds.push_back({"head and loss, tp=2", true, 1, divided(g, peaks[1]), {}, {}});
  kinds.push_back({"head and loss, no communication", true, 1, divided(silent, peaks[2]), {}, {}});
  measure(g, kinds, rounds);
  if (g.rank() != 0) return;
  std::printf("%ld rows of %ld, a vocabulary of %ld\n", static_cast<long>(kRows),
              static_cast<long>(kWidth), static_cast<long>(kVocabulary));
  print(kinds);
  const double alone = median(kinds[0].seconds);
  std::printf("  tp=2 is %.2f x one process (bound without communication %.2f)\n",
              alone / median(kinds[1].seconds), alone / median(kinds[2].seconds));
  // Half of the logits and of the weight's gradient; the input's gradient is whole on each rank.
  const double rows = kRows, width = kWidth, words = kVocabulary;
  const double half = (rows + width) * words / 2 + rows * width;
  std::printf(
      "  peak memory %.1f MiB and %.1f MiB a rank: %.2f (bound %.2f: half of the logits "
      "and of the weight's gradient)\n",
      static_cast<double>(peaks[0]) / 1048576, static_cast<double>(peaks[1]) / 1048576,
      static_cast<double>(peaks[1]) / static_cast<double>(peaks[0]),
      4 * half / static_cast<double>(peaks[0]));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const int64_t batch = argc > 2 ? std::max(2, std::atoi(argv[2])) / 2 * 2 : 8;
  SpawnOptions options;
  options.args = {std::to_string(rounds), std::to_string(batch)};
  spawn(
      2,
      [&](Group g) {
        const Group silent =
            init_process_group({.backend = "fake", .rank = g.rank(), .world_size = g.size()});
        gpt(g, silent, rounds, batch);
        head(g, silent, rounds);
        double load = 0;
        getloadavg(&load, 1);
        if (g.rank() == 0) std::printf("load %.2f\n", load);
      },
      options);
  return 0;
}
