// SPDX-License-Identifier: Apache-2.0
// Parameter servers (rpc/server), two processes of one host. Pairs alternate, figures are medians
// of the pairs' ratios:
//   a step of an MLP, servers in both workers      ≤ 1.3 × a step of ZeRO-1
//   one worker at half speed, gradients as they come ≥ 0.85 × the sum of both speeds alone
//   4,096 of 10 M rows of 32, looked up and stepped ≥ 0.4 × index_select + index_add_
// Void above 5 % of foreign load.
//   ninja -C build/release parameter_server && build/release/bench/parameter_server [ROUNDS [ROWS]]
#include "trireme/rpc/server/parameter_server.h"

#include <sched.h>
#include <sys/resource.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/foreign_load.h"
#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"
#include "trireme/optim/optimizer.h"
#include "trireme/rpc/server/sharded_embedding.h"
#include "trireme/shard/sharded_data_parallel.h"
#include "trireme/tensor/tied_tensors.h"

using namespace trireme;

namespace {

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

double seconds_of(const std::function<void()>& body) {
  const auto begin = Clock::now();
  body();
  return seconds_since(begin);
}

/// The longest that any rank took: a step is over when it is everywhere.
double slowest(Group& g, double seconds) {
  at::Tensor t = at::full({1}, seconds, at::kDouble);
  g.all_reduce(t, ReduceOp::max).wait();
  return t.item<double>();
}

torch::nn::Sequential mlp(int64_t width = 1024) {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(width, width), torch::nn::ReLU(),
                               torch::nn::Linear(width, width), torch::nn::ReLU(),
                               torch::nn::Linear(width, width), torch::nn::ReLU(),
                               torch::nn::Linear(width, width));
}

void backward(torch::nn::Sequential& net, const at::Tensor& x) {
  for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
  net->forward(x).pow(2).mean().backward();
}

rpc::ServerOptions adamw(std::optional<int64_t> staleness = {}) {
  return {.workers = 2, .staleness = staleness, .optimizer = [](NamedTensors p) {
            return make_adamw(std::move(p));
          }};
}

void dense(Group g, int rounds, bool overlap) {
  rpc::ParameterServer server(adamw());
  auto me = rpc::init({.name = "worker" + std::to_string(g.rank()), .offers = {server.offer()}});
  torch::nn::Sequential ours = mlp(), theirs = mlp();
  ShardedDataParallel zero(*theirs, g, {.stage = ZeroStage::optimizer});
  auto optimizer = make_adamw(zero.sharded().shards());
  std::vector<double> a, b, ratios;
  {
    rpc::ParameterClient client(
        me, named_parameters(*ours),
        {.servers = {"worker0", "worker1"}, .rank = g.rank(), .overlap = overlap});
    const at::Tensor x = at::randn({64, 1024});
    for (int i = 0; i < rounds + 2; ++i) {
      g.barrier();
      const double by_servers = slowest(g, seconds_of([&] {
                                          backward(ours, x);
                                          client.step(1e-3);
                                        }));
      g.barrier();
      const double by_zero = slowest(g, seconds_of([&] {
                                       zero.sharded().zero_grad();
                                       theirs->forward(x).pow(2).mean().backward();
                                       optimizer->step(1e-3);
                                       zero.sharded().publish();
                                     }));
      if (i < 2) continue;
      a.push_back(by_servers);
      b.push_back(by_zero);
      ratios.push_back(by_servers / by_zero);
    }
  }
  if (g.rank() == 0)
    std::printf(
        "MLP of 4.2 M parameters, AdamW, %s: step %.2f ms, ZeRO-1 %.2f ms: %.2f (at most "
        "1.3)\n",
        overlap ? "gradients leave during backward" : "gradients leave after backward",
        1e3 * median(a), 1e3 * median(b), median(ratios));
  server.wait();
  me.shutdown();
}

/// Steps a second of both workers together, for a while; rank 1 computes everything twice.
double speed(Group& g, const std::function<void()>& step) {
  g.barrier();
  int64_t steps = 0;
  const auto begin = Clock::now();
  while (seconds_since(begin) < 1.5) {
    step();
    ++steps;
  }
  at::Tensor t = at::full({1}, static_cast<double>(steps) / seconds_since(begin), at::kDouble);
  g.all_reduce(t).wait();
  return t.item<double>();
}

void uneven(Group g, int rounds) {
  rpc::ParameterServer server(adamw(1'000'000));
  auto me = rpc::init({.name = "worker" + std::to_string(g.rank()), .offers = {server.offer()}});
  torch::nn::Sequential net = mlp(512), local = mlp(512);
  auto optimizer = make_adamw(named_parameters(*local));
  const at::Tensor x = at::randn({256, 512});
  const int times = 1 + g.rank();
  std::vector<double> ratios;
  {
    rpc::ParameterClient client(me, named_parameters(*net),
                                {.servers = {"worker0", "worker1"}, .rank = g.rank()});
    for (int i = 0; i < std::max(3, rounds / 4); ++i) {
      const double together = speed(g, [&] {
        for (int t = 0; t < times; ++t) backward(net, x);
        client.step(1e-3);
      });
      const double alone = speed(g, [&] {
        for (int t = 0; t < times; ++t) backward(local, x);
        optimizer->step(1e-3);
      });
      ratios.push_back(together / alone);
    }
  }
  if (g.rank() == 0)
    std::printf("one worker at half speed, stale: %.2f of the sum of both speeds (at least 0.85)\n",
                median(ratios));
  server.wait();
  me.shutdown();
}

void embedding(Group g, int rounds, int64_t rows) {
  constexpr int64_t kWidth = 32, kTouched = 4096;
  if (g.rank() == 1) {
    rpc::ParameterServer server({.workers = 1});
    auto me = rpc::init({.name = "server0", .offers = {server.offer()}});
    server.wait();
    me.shutdown();
    return;
  }
  auto me = rpc::init({.name = "trainer0"});
  at::Tensor local = at::zeros({rows, kWidth});
  std::vector<double> ratios, lookups, steps, bounds;
  {
    rpc::ParameterClient client(me, {},
                                {.servers = {"server0"}, .tables = {{"items", rows, kWidth}}});
    const rpc::ShardedEmbedding items(client, "items");
    const at::Tensor gradients = at::randn({kTouched, kWidth});
    const auto round = [&](bool counts) {
      const at::Tensor ids = at::randint(rows, {kTouched}, at::kLong);
      at::Tensor looked_up;
      const double lookup = seconds_of([&] { looked_up = items(ids); });
      looked_up.backward(gradients);  // the same as for any embedding
      const double step = seconds_of([&] { client.step(1e-3); });
      const at::Tensor others = at::randint(rows, {kTouched}, at::kLong);
      const double bound = seconds_of([&] {
        const at::Tensor read = local.index_select(0, others);
        local.index_add_(0, others, gradients, -1e-3);
      });
      if (!counts) return;
      lookups.push_back(lookup);
      steps.push_back(step);
      bounds.push_back(bound);
      ratios.push_back(bound / (lookup + step));
    };
    for (int i = 0; i < 20 * rounds + 10; ++i) round(i >= 10);
  }
  std::printf(
      "%ld of %ld rows of %ld: lookup %.3f ms + step %.3f ms, index_select + index_add_ "
      "%.3f ms: %.2f of its speed (at least 0.4)\n",
      static_cast<long>(kTouched), static_cast<long>(rows), static_cast<long>(kWidth),
      1e3 * median(lookups), 1e3 * median(steps), 1e3 * median(bounds), median(ratios));
  me.shutdown();
}

void on_a_cpu_of_its_own(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
  const int64_t rows = argc > 2 ? std::max(8192LL, std::atoll(argv[2])) : 10'000'000;
  SpawnOptions options;
  options.args = {std::to_string(rounds), std::to_string(rows)};
  const ForeignLoad load;
  const auto begin = Clock::now();
  for (int part = 0; part < 4; ++part)
    spawn(
        2,
        [&](Group g) {
          at::set_num_threads(1);
          on_a_cpu_of_its_own(g.rank());
          if (part < 2) dense(g, rounds, part == 1);
          if (part == 2) uneven(g, rounds);
          if (part == 3) embedding(g, rounds, rows);
        },
        options);
  rusage ranks{};
  ::getrusage(RUSAGE_CHILDREN, &ranks);  // which the load takes for others
  const double own = static_cast<double>(ranks.ru_utime.tv_sec + ranks.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(ranks.ru_utime.tv_usec + ranks.ru_stime.tv_usec);
  const double foreign = std::max(
      0.0, load.part() -
               own / (seconds_since(begin) * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN))));
  std::printf("foreign load %.1f %%%s\n", 100 * foreign, foreign > 0.05 ? ": VOID" : "");
}
