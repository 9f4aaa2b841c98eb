// SPDX-License-Identifier: Apache-2.0
// Ranks with unequal shares train what one rank trains.
#include "trireme/train/balance/balance.h"

#include <gtest/gtest.h>

#include "tests/train/scripted_speed.h"
#include "tests/train/small_runs.h"

namespace balance_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Weights and losses after steps in which rank r needs times[r] for a sample.
Trained train_at(const std::vector<int64_t>& times, const Config& config, int64_t steps,
                 Shares* last = nullptr) {
  Trained result;
  run_threads(
      static_cast<int>(times.size()),
      [&](Group g) {
        trireme::Run run = build_run(config, g);
        script_speed(run, times[static_cast<size_t>(g.rank())]);
        start_data(run, config);
        std::vector<double> losses;
        for (int64_t i = 0; i < steps; ++i) losses.push_back(train_step(run).loss);
        const NamedTensors weights = weights_of(run);
        if (g.rank() != 0) return;
        result.losses = losses;
        result.weights = weights;
        if (last) *last = run.find<Balance>()->shares(steps - 1);
      },
      std::chrono::seconds(60));
  return result;
}

void agrees(const Config& plain, const Config& balanced, const std::vector<int64_t>& times,
            const Shares& shares, double tolerance) {
  constexpr int64_t kSteps = 12;
  const Trained one = train_on_threads(1, plain, kSteps).at(0);
  Shares last;
  const Trained many = train_at(times, balanced, kSteps, &last);
  EXPECT_EQ(last, shares);
  EXPECT_LT(relative_distance(many.weights, one.weights), tolerance);
  for (size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]) << "step " << i + 1;
}

const Sets kOn = {"balance.mode=throughput", "balance.every=2"};
Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

}  // namespace

TEST(parity_balance, shares_of_3_to_1_train_what_one_rank_trains) {
  for (const char* model : {"mlp", "net"}) {
    const Sets sets = {"gradient_clipping=0.5"};
    agrees(digits(model, sets), digits(model, with(kOn, sets)), {1000, 3000}, {12, 4}, 1e-6);
  }
}

TEST(parity_balance, shares_of_many_ranks_in_uneven_micro_batches_do_too) {
  const Sets sets = {"train_batch_size=48"};
  agrees(digits("mlp", sets),
         digits("mlp", with(kOn, with(sets, {"gradient_accumulation_steps=3",
                                             "balance.max_samples=[5,3,7,2]"}))),
         {1000, 2000, 1000, 6000}, {18, 9, 18, 3}, 1e-6);
}

TEST(parity_balance, dropout_follows_the_sample_and_not_the_share) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  agrees(tiny_gpt(corpus, {"optimizer.type=SGD"}),
         tiny_gpt(corpus, with(kOn, {"optimizer.type=SGD"})), {3000, 1000}, {4, 12}, 2e-6);
}

}  // namespace balance_test
