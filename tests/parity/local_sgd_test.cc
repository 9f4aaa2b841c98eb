// SPDX-License-Identifier: Apache-2.0
// Ranks that step apart, and the strategies that are described elsewhere, against what they must
// equal.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/grad/small_net.h"
#include "tests/train/small_runs.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/local_sgd_hook.h"
#include "trireme/optim/averaging/model_averaging.h"
#include "trireme/train/evaluate.h"

namespace local_sgd_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int kSteps = 20;

Sets with(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

NamedTensors trained(int n, const Config& config) {
  const auto all = train_on_threads(n, config, kSteps);
  return all[0].weights;
}

/// Held-out loss of the model that two ranks have at the end of the run.
double held_out_loss(const Config& config) {
  double loss = 0;
  run_threads(
      2,
      [&](Group g) {
        trireme::Run run = build_run(config, g);
        start_data(run, config);
        while (run.step < run.steps) train_step(run);
        const GradientSyncStrategy::AveragedWeightsGuard mean(*run.exchange);
        const double all = evaluate(run).loss;
        if (g.rank() == 0) loss = all;
      },
      std::chrono::seconds(120));
  return loss;
}

/// Plain SGD, in which the mean of weights after a step is a step on the mean gradient.
const Sets kPlainSgd = {"optimizer.params.momentum=0", "training.steps=20"};

}  // namespace

TEST(parity_local_sgd, a_period_of_one_is_data_parallelism) {
  for (int n : {2, 4}) {
    const NamedTensors plain = trained(n, digits("mlp", kPlainSgd));
    for (const Sets& sets :
         {Sets{"averaging.type=local_sgd", "averaging.period=1"},
          Sets{"averaging.type=hierarchical", "averaging.group_sizes=[" + std::to_string(n) + "]",
               "averaging.periods=[1]"},
          Sets{"averaging.type=diloco", "averaging.period=1", "averaging.outer_lr=1",
               "averaging.outer_momentum=0"}})
      EXPECT_LT(relative_distance(trained(n, digits("mlp", with(kPlainSgd, sets))), plain), 1e-5)
          << sets[0] << " on " << n;
  }
}

TEST(parity_local_sgd, one_rank_apart_is_plain_training_to_the_bit) {
  const PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Config plain = tiny_gpt(corpus), apart = tiny_gpt(corpus, {"averaging.type=local_sgd"});
  EXPECT_EQ(first_difference(trained(1, plain), trained(1, apart)), "");
}

TEST(parity_local_sgd, before_its_start_step_it_is_data_parallelism_to_the_bit) {
  const PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const NamedTensors plain = trained(2, tiny_gpt(corpus));
  for (const char* type : {"local_sgd", "diloco"}) {
    const Sets sets{std::string("averaging.type=") + type, "averaging.period=3"};
    EXPECT_EQ(first_difference(
                  trained(2, tiny_gpt(corpus, with(sets, {"averaging.start_step=20"}))), plain),
              "");
    EXPECT_NE(first_difference(
                  trained(2, tiny_gpt(corpus, with(sets, {"averaging.start_step=17"}))), plain),
              "")
        << "three steps apart and an average";
  }
}

TEST(parity_local_sgd, ranks_that_are_all_near_are_data_parallel) {
  const NamedTensors plain = trained(4, digits("mlp", {"training.steps=20"}));
  EXPECT_LT(
      relative_distance(trained(4, digits("mlp", {"training.steps=20", "averaging.type=local_sgd",
                                                  "averaging.near=4", "averaging.period=7"})),
                        plain),
      1e-6);
}

// Nets that step by themselves and are averaged by hand.
TEST(parity_local_sgd, a_loop_of_one_s_own_equals_the_serial_simulation) {
  constexpr int kRanks = 3, kPeriod = 4;
  auto step = [](Small& net, torch::optim::SGD& sgd, int s, int rank) {
    sgd.zero_grad();
    net->forward((input(4) + 0.3 * s + rank).sin()).pow(2).sum(1).mean().backward();
    sgd.step();
  };
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  std::vector<Small> nets;
  std::vector<torch::optim::SGD> optimizers;
  for (int r = 0; r < kRanks; ++r) {
    nets.push_back(make(5));
    optimizers.emplace_back(nets.back()->parameters(), options);
  }
  for (int s = 0; s < kSteps; ++s) {
    for (size_t r = 0; r < kRanks; ++r) step(nets[r], optimizers[r], s, static_cast<int>(r));
    if ((s + 1) % kPeriod) continue;
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < nets[0]->parameters().size(); ++i) {
      at::Tensor mean = at::zeros_like(nets[0]->parameters()[i]);
      for (auto& net : nets) mean += net->parameters()[i] / kRanks;
      for (auto& net : nets) net->parameters()[i].copy_(mean);
    }
  }
  run_threads(kRanks, [&](Group g) {
    Small net = make(5);
    NamedTensors parameters;
    for (const auto& item : net->named_parameters())
      parameters.emplace_back(item.key(), item.value());
    auto averager = average_periodically(parameters, g, {.period = kPeriod});
    DistributedDataParallel ddp(
        net, g, {.hook = local_sgd_hook([&] { return averager->steps_locally(); })});
    torch::optim::SGD sgd(net->parameters(), options);
    for (int s = 0; s < kSteps; ++s) {
      step(net, sgd, s, g.rank());
      averager->step();
    }
    const auto want = nets[static_cast<size_t>(g.rank())]->named_parameters();
    for (const auto& item : net->named_parameters()) {
      const at::Tensor difference = item.value() - want[item.key()];
      expect(difference.norm().item<double>() < 1e-12, item.key());
    }
  });
}

TEST(parity_local_sgd, the_described_master_flows_have_the_bits_of_all_reduce) {
  const PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (int n : {2, 3}) {
    const Sets size{"train_batch_size=" + std::to_string(4 * n)};
    const auto plain = train_on_threads(n, tiny_gpt(corpus, size), kSteps);
    for (const char* strategy : {"parameter_server", "broadcast_parameters"}) {
      const auto all = train_on_threads(
          n, tiny_gpt(corpus, with(size, {std::string("comm.strategy=") + strategy})), kSteps);
      for (int r = 0; r < n; ++r)
        EXPECT_EQ(first_difference(all[static_cast<size_t>(r)].weights, plain[0].weights), "")
            << strategy << " on rank " << r << " of " << n;
    }
  }
}

// Twenty periods: with the outer momentum of the paper, 0.9, which is for hundreds of steps a
// period, the same run ends 12 % above.
TEST(parity_local_sgd, diloco_as_it_comes_is_within_3_percent_of_data_parallelism) {
  const PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Sets long_run{"training.steps=320", "scheduler.params.warmup_num_steps=50",
                      "training.eval_batches=1000"};
  const double plain = held_out_loss(tiny_gpt(corpus, long_run));
  EXPECT_LT(plain, 0.75) << "it has learnt: by their frequency alone its bytes are 2.7";
  EXPECT_LT(held_out_loss(tiny_gpt(corpus, with(long_run, {"averaging.type=diloco"}))),
            1.03 * plain);
}

}  // namespace local_sgd_test
