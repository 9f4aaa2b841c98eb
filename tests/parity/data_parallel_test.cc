// SPDX-License-Identifier: Apache-2.0
// The table of data parallelism: every option on 2 and 4 ranks against the serial run.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <map>
#include <mutex>

#include "tests/grad/small_net.h"
#include "tests/train/small_runs.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/cast_hook.h"
#include "trireme/grad/join.h"
#include "trireme/grad/reducer.h"

namespace data_parallel_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// ── A bare loop: DistributedDataParallel's options ─────────────────────────────────────────────

constexpr int kSteps = 5;
constexpr int64_t kRows = 16;  // of a step, over all ranks

at::Tensor rows_of(int step) { return (input(kRows) + 0.3 * step).sin(); }

void serial(Small& net) {
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    net->forward(rows_of(step)).pow(2).sum(1).mean().backward();
    sgd.step();
  }
}

struct Row {
  const char* name;
  DdpOptions options;
  double tolerance = 1e-10;
  /// One rank's backwards of a step on its rows; empty: one backward of their mean.
  std::function<void(DistributedDataParallel&, Small&, at::Tensor)> backward{};
  bool unequal = false;  // rank 0 has half of the rows, the others share the rest
};

at::Tensor part_of(const at::Tensor& all, int rank, int n, bool unequal) {
  if (!unequal) return all.narrow(0, kRows / n * rank, kRows / n);
  const int64_t rest = kRows / 2 / (n - 1), last = kRows - kRows / 2 - rest * (n - 2);
  return rank == 0 ? all.narrow(0, 0, kRows / 2)
                   : all.narrow(0, kRows / 2 + rest * (rank - 1), rank == n - 1 ? last : rest);
}

void by_weight(DistributedDataParallel& ddp, Small& net, const at::Tensor& x) {
  ddp.set_weight(static_cast<double>(x.size(0)));
  net->forward(x).pow(2).sum().backward();
}

CommHook slow_start(CommHook inner) {  // buckets that complete late and out of step with hooks
  return [inner](Group& g, GradBucket& b, ReduceOp op) {
    Work work = inner(g, b, op);
    g.progress();
    return work;
  };
}

std::vector<Row> table() {
  const size_t one = 1;
  return {
      {"defaults", {}},
      {"a bucket for each parameter", {.bucket_bytes = one, .first_bucket_bytes = one}},
      {"one bucket", {.bucket_bytes = 1 << 20, .first_bucket_bytes = 1 << 20}},
      {"buffers: mean", {.buffers = BufferPolicy::mean}},
      {"buffers: none", {.buffers = BufferPolicy::none}},
      {"find_unused_parameters", {.find_unused_parameters = true}},
      {"static_graph", {.bucket_bytes = one, .first_bucket_bytes = one, .static_graph = true}},
      {"delayed", {.bucket_bytes = one, .first_bucket_bytes = one, .delayed = {"*.weight"}}},
      {"check_finite", {.check_finite = true}},
      {"hook none", {.hook = named_comm_hook("none")}},
      {"hook around a hook", {.hook = slow_start(named_comm_hook("none"))}},
      {"hook fp16", {.hook = named_comm_hook("fp16")}, 2e-3},
      {"hook bf16", {.hook = named_comm_hook("bf16")}, 2e-2},
      {"hook float32 under float64", {.hook = cast_hook(at::kFloat)}, 1e-6},
      {"by weight", {.mean = GradientMean::of_weights}, 1e-10, by_weight},
      {"by weight, unequal ranks", {.mean = GradientMean::of_weights}, 1e-10, by_weight, true},
      {"by weight, unequal micro-batches",
       {.mean = GradientMean::of_weights, .check_finite = true},
       1e-10,
       [](DistributedDataParallel& ddp, Small& net, at::Tensor x) {
         const int64_t first = x.size(0) / 3 + 1;
         if (first < x.size(0)) {
           auto guard = ddp.no_sync();
           by_weight(ddp, net, x.narrow(0, 0, first));
           x = x.narrow(0, first, x.size(0) - first);
         }
         by_weight(ddp, net, x);
       },
       true},
      {"no_sync",
       {},
       1e-10,
       [](DistributedDataParallel& ddp, Small& net, at::Tensor x) {
         const auto half = x.size(0) / 2;
         auto backward = [&](int64_t begin) {
           net->forward(x.narrow(0, begin, half)).pow(2).sum(1).mean().div(2).backward();
         };
         {
           auto guard = ddp.no_sync();
           backward(0);
         }
         backward(half);
       }},
      {"two backwards before the step",
       {},
       1e-10,
       [](DistributedDataParallel&, Small& net, at::Tensor x) {
         const auto half = x.size(0) / 2;
         for (int64_t begin : {int64_t{0}, half})
           net->forward(x.narrow(0, begin, half)).pow(2).sum(1).mean().div(2).backward();
       }},
      {"counted forwards",
       {},
       1e-10,
       [](DistributedDataParallel& ddp, Small& net, at::Tensor x) {
         ddp.forward(net, x).pow(2).sum(1).mean().backward();
       }},
  };
}

void trains_as_serial(Group g, const Row& row) {
  Small net = make(static_cast<uint64_t>(1 + g.rank())), plain = make(1);
  DistributedDataParallel ddp(net, g, row.options);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  join({&ddp}, [&] {
    for (int step = 0; step < kSteps; ++step) {
      sgd.zero_grad();
      const at::Tensor mine = part_of(rows_of(step), g.rank(), g.size(), row.unequal);
      if (row.backward)
        row.backward(ddp, net, mine);
      else
        net->forward(mine).pow(2).sum(1).mean().backward();
      sgd.step();
    }
  });
  serial(plain);
  for (const auto& p : plain->named_parameters()) {
    const at::Tensor got = net->named_parameters()[p.key()];
    const double error = (got - p.value()).norm().item<double>() / p.value().norm().item<double>();
    expect(error <= row.tolerance,
           std::string(row.name) + ": " + p.key() + " is off by " + std::to_string(error));
    at::Tensor all = torch::empty({g.size(), got.numel()}, got.options());
    g.all_gather_into_tensor(all, got.detach().reshape({-1}).contiguous()).wait();
    expect((all == all[0]).all().item<bool>(), std::string(row.name) + ": ranks differ");
  }
}

// ── The training step: what a configuration can ask for ────────────────────────────────────────

struct Setting {
  const char* name;
  Sets sets;
  double tolerance = 1e-5;
};

std::vector<Setting> settings() {
  return {
      {"accumulation", {"gradient_accumulation_steps=4"}},
      {"clipping", {"gradient_clipping=0.05"}},
      {"small buckets", {"comm.bucket_mb=0.001"}},
      {"find_unused_parameters", {"training.find_unused_parameters=true"}},
      {"gradients travel as bfloat16", {"communication_data_type=\"bf16\""}, 2e-2},
      {"gradients travel as float16", {"communication_data_type=\"fp16\""}, 2e-3},
      {"bfloat16 with masters", {"bf16.enabled=true"}, 3e-2},
      {"bfloat16 autocast", {"torch_autocast.enabled=true"}, 2e-2},
      {"float16, emulated", {"fp16.enabled=true", "fp16.emulate=true"}, 5e-3},
      {"warm-up and cosine",
       {"scheduler.type=cosine", "scheduler.params.warmup_num_steps=2", "training.steps=6"}},
  };
}

}  // namespace

TEST(parity_data_parallel, every_option_of_a_bare_loop_trains_as_serial_on_2_and_4_ranks) {
  for (int n : {2, 4})
    for (const Row& row : table()) {
      SCOPED_TRACE(row.name);
      EXPECT_NO_THROW(run_threads(n, [&](Group g) { trains_as_serial(g, row); }))
          << row.name << " on " << n << " ranks";
    }
}

// A rank is this program started again.
TEST(parity_data_parallel, so_it_does_on_2_and_4_processes) {
  SpawnOptions options;
  options.timeout = std::chrono::seconds(60);
  options.args = {"--gtest_filter=parity_data_parallel.so_it_does_on_2_and_4_processes"};
  for (int n : {2, 4})
    spawn(
        n,
        [&](Group g) {
          for (const Row& row : table()) trains_as_serial(g, row);
        },
        options);
}

TEST(parity_data_parallel, every_setting_of_the_training_step_equals_one_rank) {
  for (const Setting& setting : settings()) {
    Sets serial_sets = setting.sets;
    const Trained one = train_on_threads(1, digits("mlp", serial_sets), 5).at(0);
    for (int n : {2, 4}) {
      SCOPED_TRACE(std::string(setting.name) + " on " + std::to_string(n) + " ranks");
      const auto all = train_on_threads(n, digits("mlp", setting.sets), 5);
      for (const Trained& rank : all) {
        EXPECT_LT(relative_distance(rank.weights, one.weights), setting.tolerance);
        EXPECT_EQ(first_difference(rank.weights, all[0].weights), "") << "ranks differ";
      }
    }
  }
}

namespace {

// How far weights are from each other, as a part of the way that training took them: a measure that
// the learning rate is not in.
double part_of_the_way(const NamedTensors& a, const NamedTensors& b, const NamedTensors& start) {
  double apart = 0, way = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    apart += (a[i].second - b[i].second).to(at::kDouble).square().sum().item<double>();
    way += (b[i].second - start[i].second).to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(apart / way);
}

// What goes wrong on purpose: each must be further away than the tolerance.
enum class Mutation { none, every_gradient_twice, one_ranks_gradient_twice, ranks_alone };

NamedTensors mutated(int n, const Config& config, int64_t steps, Mutation mutation) {
  std::mutex mutex;
  NamedTensors weights;
  run_threads(n, [&](Group g) {
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    if (mutation == Mutation::every_gradient_twice ||
        (mutation == Mutation::one_ranks_gradient_twice && g.rank() == 1))
      for (const auto& [name, p] : run.gradients->parameters())
        p.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    for (int64_t i = 0; i < steps; ++i) train_step(run);
    std::lock_guard lock(mutex);
    if (g.rank() == 0) weights = weights_of(run);
  });
  return weights;
}

}  // namespace

TEST(parity_data_parallel, every_optimizer_equals_one_rank) {
  struct OptimizerRow {
    const char* type;
    Sets sets;
    double tolerance;      // as a part of the way
    bool scale_invariant;  // a gradient and its double make nearly the same step
  };
  // Those that divide by a root of squares make steps of ± the rate out of rounding where a
  // gradient is nearly zero: few steps, and a wider tolerance.
  const std::vector<OptimizerRow> rows = {
      {"SGD", {"optimizer.params.lr=0.05"}, 1e-4, false},
      {"Lars", {"optimizer.params.lr=1"}, 1e-4, true},
      {"Adam", {"optimizer.params.lr=1e-3"}, 2e-2, true},
      {"AdamW", {"optimizer.params.lr=1e-3"}, 2e-2, true},
      {"AdamW", {"optimizer.params.lr=1e-3", "optimizer.params.amsgrad=true"}, 2e-2, true},
      {"Lamb", {"optimizer.params.lr=1e-2"}, 2e-2, true},
      {"Lamb", {"optimizer.params.lr=1e-2", "optimizer.params.bias_correction=false"}, 2e-2, true},
      {"AdaMod", {"optimizer.params.lr=1e-2"}, 2e-2, true},
      {"Lion", {"optimizer.params.lr=1e-4"}, 2e-2, true},
      {"Adafactor", {"optimizer.params.lr=1e-2"}, 2e-2, true},
      {"RMSprop", {"optimizer.params.lr=1e-3"}, 2e-2, true},
      {"Adagrad", {"optimizer.params.lr=1e-2"}, 2e-2, true},
  };
  constexpr int64_t kFew = 4;
  for (const OptimizerRow& row : rows) {
    Sets sets = row.sets;
    sets.push_back(std::string("optimizer.type=") + row.type);
    const Config config = digits("mlp", sets);
    const Config alone = digits("mlp", [&] {
      Sets more = sets;
      more.insert(more.end(), {"averaging.type=local_sgd", "averaging.period=1000000"});
      return more;
    }());
    const NamedTensors start = mutated(1, config, 0, Mutation::none);
    const NamedTensors one = mutated(1, config, kFew, Mutation::none);
    for (int n : {2, 4}) {
      SCOPED_TRACE(sets.front() + ' ' + row.type + " on " + std::to_string(n) + " ranks");
      const auto all = train_on_threads(n, config, kFew);
      EXPECT_LT(part_of_the_way(all[1].weights, one, start), row.tolerance);
      EXPECT_EQ(first_difference(all[1].weights, all[0].weights), "") << "ranks differ";
      // The tolerance tells each of these mistakes from rounding.
      const auto mistake = [&](int64_t steps, Mutation mutation) {
        return part_of_the_way(
            mutated(n, mutation == Mutation::ranks_alone ? alone : config, steps, mutation), one,
            start);
      };
      EXPECT_GT(mistake(kFew - 1, Mutation::none), 3 * row.tolerance) << "a step is skipped";
      EXPECT_GT(mistake(kFew, Mutation::one_ranks_gradient_twice), 3 * row.tolerance)
          << "one rank's gradient is counted twice";
      EXPECT_GT(mistake(kFew, Mutation::ranks_alone), 3 * row.tolerance)
          << "gradients are not added over ranks";
      if (!row.scale_invariant) {
        EXPECT_GT(mistake(kFew, Mutation::every_gradient_twice), 3 * row.tolerance)
            << "gradients are twice as large";
      }
    }
  }
}

// ── The source documents' formulas ─────────────────────────────────────────────────────────────

TEST(parity_data_parallel, theta_i_equals_theta_1) {
  run_threads(4, [](Group g) {
    Small net = make(static_cast<uint64_t>(1 + g.rank())), first = make(1), own = make(4);
    expect(!own->a->weight.equal(first->a->weight), "seeds do not matter");
    DistributedDataParallel ddp(net, g);
    for (auto& p : first->named_parameters())
      expect(net->named_parameters()[p.key()].equal(p.value()), p.key());
  });
}

TEST(parity_data_parallel, g_equals_one_over_n_times_the_sum_of_g_j) {
  run_threads(4, [](Group g) {
    Small net = make(1), local = make(1);
    DistributedDataParallel ddp(net, g);
    net->forward(input(4) + g.rank()).pow(2).mean().backward();
    local->forward(input(4) + g.rank()).pow(2).mean().backward();
    for (auto& p : local->named_parameters()) {
      at::Tensor sum = p.value().grad().clone();
      g.all_reduce(sum).wait();
      expect(torch::allclose(net->named_parameters()[p.key()].grad(), sum / 4, 1e-12, 1e-14),
             p.key());
    }
  });
}

TEST(parity_data_parallel, theta_becomes_theta_minus_alpha_g) {
  run_threads(4, [](Group g) {
    constexpr double alpha = 0.3;
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD sgd(net->parameters(), alpha);
    net->forward(input(4) + g.rank()).pow(2).mean().backward();
    std::map<std::string, at::Tensor> want;
    at::NoGradGuard no_grad;
    for (auto& p : net->named_parameters())
      want[p.key()] = (p.value() - alpha * p.value().grad()).clone();
    sgd.step();
    for (auto& p : net->named_parameters())
      expect(torch::allclose(p.value(), want[p.key()], 1e-14, 1e-15), p.key());
  });
}

}  // namespace data_parallel_test
