// SPDX-License-Identifier: Apache-2.0
// A step over any number of ranks and micro-batches is the step of the whole batch.
#include <gtest/gtest.h>

#include "tests/train/small_runs.h"

namespace plain_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Make = std::function<Config(const Sets&)>;

/// The gradients of the first step within 1e-5 of each tensor's norm, the weights after `steps`
/// within `weights`, and the losses, for (ranks, accumulation) against one rank with one
/// micro-batch.
void equals_the_whole_batch(const Make& make, int64_t steps, double weights) {
  const Trained whole = train_on_threads(1, make({"gradient_accumulation_steps=1"}), steps).at(0);
  NamedTensors start;
  run_threads(1, [&](Group g) { start = weights_of(build_run(make({}), g)); });
  EXPECT_GT(relative_distance(whole.weights, start), 100 * weights) << "nothing was trained";
  struct Layout {
    int ranks, accumulation;
  };
  for (auto [ranks, accumulation] :
       {Layout{1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 4}, {4, 1}, {4, 2}, {4, 4}}) {
    const Config config = make({"gradient_accumulation_steps=" + std::to_string(accumulation)});
    const auto all = train_on_threads(ranks, config, steps);
    SCOPED_TRACE(std::to_string(ranks) + " ranks, accumulation " + std::to_string(accumulation));
    for (const Trained& rank : all) {
      EXPECT_LT(relative_distance(rank.first_gradients, whole.first_gradients), 1e-5);
      EXPECT_LT(relative_distance(rank.weights, whole.weights), weights);
      EXPECT_EQ(first_difference(rank.weights, all[0].weights), "") << "ranks differ";
    }
    for (size_t i = 0; i < whole.losses.size(); ++i)
      EXPECT_NEAR(all[0].losses[i], whole.losses[i], 1e-5 * whole.losses[i]) << "step " << i + 1;
  }
}

}  // namespace

TEST(parity_plain, an_mlp_over_ranks_and_micro_batches_equals_the_whole_batch) {
  equals_the_whole_batch([](const Sets& sets) { return digits("mlp", sets); }, 5, 1e-5);
}

TEST(parity_plain, the_net_over_ranks_and_micro_batches_equals_the_whole_batch) {
  equals_the_whole_batch([](const Sets& sets) { return digits("net", sets); }, 3, 1e-5);
}

TEST(parity_plain, a_gpt_over_ranks_and_micro_batches_equals_the_whole_batch) {
  // SGD: AdamW makes a step of ± the learning rate out of rounding where a gradient is zero. With
  // dropout, which is keyed by sample.
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  equals_the_whole_batch(
      [&](Sets sets) {
        sets.insert(sets.end(), {"optimizer.type=SGD", "optimizer.params.lr=0.5",
                                 "optimizer.params.momentum=0.9", "gradient_clipping=1"});
        return tiny_gpt(corpus, sets);
      },
      4, 1e-5);
}

TEST(parity_plain, the_untied_head_too) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Sets sets = {"model.tied_head=false"};
  const auto one = train_on_threads(1, tiny_gpt(corpus, sets), 1),
             two = train_on_threads(2, tiny_gpt(corpus, sets), 1);
  EXPECT_EQ(one[0].first_gradients.back().first, "head.weight");
  EXPECT_LT(relative_distance(two[1].first_gradients, one[0].first_gradients), 1e-5);
}

}  // namespace plain_test
