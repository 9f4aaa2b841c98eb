// SPDX-License-Identifier: Apache-2.0
// A GPT of 8 blocks of width 384 in 8 micro-batches, as a pipeline over two processes with one
// thread and one core each, against one process with one thread: 1F1B, interleaved 1F1B with two
// stages a rank, and ZB-H1. The bound is the time that the schedule takes with the costs that were
// measured in the same steps (median of each stage's F, I and W). Then four processes whose stages
// sleep instead of computing: what part of a step is idle, beside what the schedule predicts from
// the times that they slept. Kinds take turns in every round; times are medians, CPU seconds those
// of all processes.
//   cmake --build build/release --target pipeline
//   build/release/bench/pipeline [ROUNDS] [SAMPLES OF A MICRO-BATCH]
#include "trireme/pipeline/pipeline.h"

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/start/run.h"
#include "trireme/models/gpt.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/stage_blocks.h"
#include "trireme/pipeline/schedule/timing.h"
#include "trireme/tensor/random/random.h"

using namespace trireme;
using pipeline::ActionKind;

namespace {

constexpr int kMicroBatches = 8;

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

void one_thread_on(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<size_t>(cpu), &cpus);
  if (::sched_setaffinity(0, sizeof cpus, &cpus) != 0) std::perror("sched_setaffinity");
  at::set_num_threads(1);
  if (auto* set =
          reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")))
    set(1);
}

/// How long each stage's F, I, W and B took on this rank.
class Stopwatch {
 public:
  void time(const pipeline::Action& a, const std::function<void()>& body) {
    const auto begin = Clock::now();
    body();
    if (on) taken_[{a.stage, static_cast<int>(a.kind)}].push_back(seconds_since(begin));
  }
  /// Of all ranks. What a schedule has only as B counts as I.
  pipeline::Costs costs(Group g, int stages) const {
    std::vector<double> mine(static_cast<size_t>(3 * stages), 0.0);
    const auto of = [&](int stage, ActionKind kind) {
      const auto it = taken_.find({stage, static_cast<int>(kind)});
      return it == taken_.end() ? 0.0 : median(it->second);
    };
    for (int s = 0; s < stages; ++s) {
      double* to = mine.data() + 3 * s;
      to[0] = of(s, ActionKind::forward);
      to[1] = of(s, ActionKind::input_gradient);
      to[2] = of(s, ActionKind::weight_gradient);
      if (to[1] + to[2] == 0) to[1] = of(s, ActionKind::backward);
    }
    pipeline::Costs all;
    all.stages.assign(static_cast<size_t>(stages), {0, 0, 0});
    for (const auto& rank : all_gather_object(g, mine))
      for (size_t s = 0; s < all.stages.size(); ++s) {
        all.stages[s].forward += rank[3 * s];
        all.stages[s].input_gradient += rank[3 * s + 1];
        all.stages[s].weight_gradient += rank[3 * s + 2];
      }
    return all;
  }
  bool on = false;

 private:
  std::map<std::pair<int, int>, std::vector<double>> taken_;
};

struct Kind {
  std::string name;
  std::function<void()> step;
  std::shared_ptr<Stopwatch> watch;
  pipeline::Schedule schedule;
  std::vector<double> seconds, cpu;
};

void measure(Group g, std::vector<Kind>& kinds, int rounds) {
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (Kind& kind : kinds) {
      if (kind.watch) kind.watch->on = round >= 0;
      g.barrier();
      const double cpu = cpu_seconds();
      const auto begin = Clock::now();
      kind.step();
      at::Tensor longest = at::full({1}, seconds_since(begin), at::kDouble);
      at::Tensor used = at::full({1}, cpu_seconds() - cpu, at::kDouble);
      g.all_reduce(used).wait();
      g.all_reduce(longest, ReduceOp::max).wait();
      if (round < 0) continue;
      kind.seconds.push_back(longest.item<double>());
      kind.cpu.push_back(used.item<double>());
    }
}

double bound_of(Group g, const Kind& kind) {
  return simulate(kind.schedule, kind.watch->costs(g, kind.schedule.stages())).makespan;
}

void forget(const torch::nn::Module& model) {
  for (const auto& p : model.parameters()) at::Tensor(p).mutable_grad() = at::Tensor();
}

void gpt(Group g, int rounds, int64_t samples) {
  GptOptions options;
  options.layers = 8;
  torch::manual_seed(1);
  std::vector<at::Tensor> ids, targets;
  for (int i = 0; i < kMicroBatches; ++i) {
    ids.push_back(at::randint(256, {samples, options.context}, at::kLong));
    targets.push_back(at::randint(256, {samples, options.context}, at::kLong));
  }
  std::vector<int64_t> numbers(static_cast<size_t>(samples));
  std::iota(numbers.begin(), numbers.end(), 0);

  std::vector<Kind> kinds;
  const auto whole = std::make_shared<Gpt>(options, 1);
  kinds.push_back({"one process",
                   [&, whole] {
                     if (g.rank() > 0) return;
                     for (size_t i = 0; i < kMicroBatches; ++i) {
                       const RandomScope random({42, 0, numbers});
                       whole->loss_sum(whole->forward(ids[i]), targets[i]).backward();
                     }
                     forget(*whole);
                   },
                   nullptr,
                   {},
                   {},
                   {}});
  for (const char* name : {"1f1b", "interleaved_1f1b", "zb_h1"}) {
    const auto plan = pipeline::plan_pipeline({.schedule = name,
                                               .ranks = g.size(),
                                               .micro_batches = kMicroBatches,
                                               .blocks = options.layers});
    GptOptions mine = options;
    std::vector<int> indices;
    for (int s = 0; s < plan.schedule.stages(); ++s)
      if (plan.schedule.rank_of_stage[static_cast<size_t>(s)] == g.rank()) {
        mine.stages.push_back(plan.stages[static_cast<size_t>(s)]);
        indices.push_back(s);
      }
    auto model = std::make_shared<Gpt>(mine, 1);
    auto watch = std::make_shared<Stopwatch>();
    std::vector<PipelineStage> stages;
    for (size_t own = 0; own < indices.size(); ++own)
      stages.push_back({indices[own], [&ids, model, own, first = indices[own] == 0](
                                          const PipelineStage::Tensors& in, int i) {
                          model->select_stage(own);
                          auto all = in;
                          if (!first) all.push_back(ids[static_cast<size_t>(i)]);
                          return model->forward_list(all);
                        }});
    auto run = std::make_shared<Pipeline>(
        g, plan.schedule, std::move(stages),
        PipelineOptions{.around = [watch, numbers](const pipeline::Action& a, const auto& body) {
          const RandomScope random({42, 0, numbers});
          watch->time(a, body);
        }});
    kinds.push_back({name,
                     [&, model, run] {
                       run->step([&](int i) { return std::vector{ids[static_cast<size_t>(i)]}; },
                                 [&](const auto& out, int i) {
                                   return model->loss_sum(out[0], targets[static_cast<size_t>(i)]);
                                 });
                       forget(*model);
                     },
                     watch,
                     run->schedule(),
                     {},
                     {}});
  }
  measure(g, kinds, rounds);
  std::vector<double> bounds;
  for (const Kind& kind : kinds) bounds.push_back(kind.watch ? bound_of(g, kind) : 0);
  if (g.rank() > 0) return;
  std::printf("GPT, 8 blocks of width 384, %d micro-batches of %ld x %ld tokens; %d rounds\n",
              kMicroBatches, static_cast<long>(samples), static_cast<long>(options.context),
              rounds);
  const double alone = median(kinds[0].seconds), plain = median(kinds[1].seconds);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const double taken = median(kinds[i].seconds);
    std::printf("  %-18s %8.1f ms  %5.2f x  %6.2f CPU s", kinds[i].name.c_str(), 1e3 * taken,
                alone / taken, median(kinds[i].cpu));
    if (i > 0)
      std::printf("  bound %5.2f x: %.3f of it; %.3f x 1f1b", alone / bounds[i], bounds[i] / taken,
                  plain / taken);
    std::printf("\n");
  }
}

constexpr double kForward = 0.008, kInput = 0.008, kWeight = 0.008;
void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Asleep : torch::autograd::Function<Asleep> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x,
                            const at::Tensor&) {
    sleep_for(kForward);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    torch::autograd::variable_list result(2);
    if (ctx->needs_input_grad(0)) {
      sleep_for(kInput);
      result[0] = grads[0];
    }
    if (ctx->needs_input_grad(1)) {
      sleep_for(kWeight);
      result[1] = grads[0].sum().reshape({1});
    }
    return result;
  }
};

void asleep(Group g, int rounds) {
  std::vector<Kind> kinds;
  for (const auto& known : pipeline::schedule_kinds()) {
    const auto plan = pipeline::plan_pipeline(
        {.schedule = known.name, .ranks = g.size(), .micro_batches = 8, .blocks = 64});
    const at::Tensor weight = at::zeros({1}).requires_grad_(true);
    auto watch = std::make_shared<Stopwatch>();
    std::vector<PipelineStage> stages;
    for (int s = 0; s < plan.schedule.stages(); ++s)
      if (plan.schedule.rank_of_stage[static_cast<size_t>(s)] == g.rank())
        stages.push_back({s, [weight](const PipelineStage::Tensors& in, int) {
                            return PipelineStage::Tensors{Asleep::apply(in[0], weight)};
                          }});
    auto run = std::make_shared<Pipeline>(
        g, plan.schedule, std::move(stages),
        PipelineOptions{.around = [watch](const pipeline::Action& a, const auto& body) {
          watch->time(a, body);
        }});
    kinds.push_back({known.name,
                     [run] {
                       run->step([](int) { return PipelineStage::Tensors{at::ones({16})}; },
                                 [](const auto& out, int) { return out[0].sum(); });
                     },
                     watch,
                     run->schedule(),
                     {},
                     {}});
  }
  measure(g, kinds, rounds);
  if (g.rank() == 0)
    std::printf("%d processes that sleep: F, I and W of 8 ms, 8 micro-batches; %d rounds\n",
                g.size(), rounds);
  for (const Kind& kind : kinds) {
    const auto timing = simulate(kind.schedule, kind.watch->costs(g, kind.schedule.stages()));
    double busiest = 0;
    for (const auto& rank : timing.ranks) busiest = std::max(busiest, rank.busy);
    const double bubble = 1 - busiest / median(kind.seconds);
    if (g.rank() == 0)
      std::printf("  %-18s %8.1f ms  idle %5.1f %%  predicted %5.1f %%  %+.1f points\n",
                  kind.name.c_str(), 1e3 * median(kind.seconds), 100 * bubble,
                  100 * timing.bubble(), 100 * (bubble - timing.bubble()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const int64_t samples = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
  SpawnOptions options;
  options.args = {std::to_string(rounds), std::to_string(samples)};
  spawn(
      2,
      [&](Group g) {
        one_thread_on(g.rank());
        gpt(g, rounds, samples);
      },
      options);
  spawn(
      4, [&](Group g) { asleep(g, std::min(rounds, 5)); }, options);
  return 0;
}
