// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/weighted_sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/serialize.h>

#include <map>
#include <set>
#include <sstream>

#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/data/counted.h"

namespace trireme::testing::weighted_sampler_test {
namespace {

using Options = DistributedWeightedSamplerOptions;
using Indices = std::vector<size_t>;

Indices draw(DistributedWeightedSampler& sampler, size_t batch = 7) {
  Indices all;
  while (auto indices = sampler.next(batch))
    all.insert(all.end(), indices->begin(), indices->end());
  return all;
}

Indices epoch_of(const std::vector<double>& weights, size_t world, size_t rank, Options options,
                 size_t epoch = 0) {
  DistributedWeightedSampler sampler(weights, world, rank, options);
  sampler.set_epoch(epoch);
  sampler.reset();
  return draw(sampler);
}

/// How often each sample is drawn, over the draws.
std::vector<double> shares_of(const Indices& drawn, size_t samples) {
  std::vector<double> shares(samples);
  for (const size_t i : drawn) shares[i] += 1.0 / static_cast<double>(drawn.size());
  return shares;
}

TEST(data_weighted_sampler, draws_in_proportion_to_the_weights) {
  const std::vector<double> weights{1, 2, 0, 3, 4};
  const auto shares = shares_of(epoch_of(weights, 1, 0, {.num_samples = 100000}), 5);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(shares[i], weights[i] / 10, 0.005) << i;
  EXPECT_EQ(shares[2], 0);
}

TEST(data_weighted_sampler, without_replacement_draws_as_torch_multinomial_does) {
  // How often each sample is among 2 of them, which is not in proportion to the weights.
  const std::vector<double> weights{1, 2, 3, 4, 0};
  std::vector<double> ours(5);
  constexpr int kEpochs = 20000;
  DistributedWeightedSampler sampler(weights, 1, 0, {.num_samples = 2, .replacement = false});
  for (size_t epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.reset();
    const Indices drawn = draw(sampler);
    ASSERT_EQ(std::set<size_t>(drawn.begin(), drawn.end()).size(), 2u);
    for (const size_t i : drawn) ours[i] += 1.0 / kEpochs;
  }
  const at::Tensor torchs =
      at::bincount(at::multinomial(at::tensor(weights, at::kDouble).expand({kEpochs, 5}), 2, false)
                       .flatten(),
                   {}, 5)
          .div(double{kEpochs});
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(ours[i], torchs[static_cast<int64_t>(i)].item<double>(), 0.015) << i;
}

TEST(data_weighted_sampler, ranks_draw_together_what_one_draws_alone) {
  const std::vector<double> weights{5, 1, 1, 1, 1, 1, 1, 1, 1, 3};
  for (const bool replacement : {true, false})
    for (const size_t draws : {size_t{8}, size_t{10}})
      for (const size_t world : {2u, 3u, 4u}) {
        const Options options{.num_samples = draws, .replacement = replacement, .seed = 3};
        const Indices alone = epoch_of(weights, 1, 0, options, 5);
        ASSERT_EQ(alone.size(), draws);
        for (size_t rank = 0; rank < world; ++rank) {
          const Indices mine = epoch_of(weights, world, rank, options, 5);
          ASSERT_EQ(mine.size(), (draws + world - 1) / world);
          for (size_t i = 0; i < mine.size(); ++i)
            EXPECT_EQ(mine[i], alone[(rank + i * world) % draws]);
        }
      }
}

TEST(data_weighted_sampler, epochs_and_seeds_draw_otherwise_and_a_repeated_one_alike) {
  const std::vector<double> weights(50, 1.0);
  for (const bool replacement : {true, false}) {
    const Options options{.replacement = replacement};
    const Indices first = epoch_of(weights, 2, 1, options, 0);
    EXPECT_EQ(epoch_of(weights, 2, 1, options, 0), first);
    EXPECT_NE(epoch_of(weights, 2, 1, options, 1), first);
    EXPECT_NE(epoch_of(weights, 2, 1, {.replacement = replacement, .seed = 1}, 0), first);
    // A loop that never calls set_epoch() has another order in each epoch all the same.
    DistributedWeightedSampler sampler(weights, 2, 1, options);
    sampler.reset();
    EXPECT_EQ(draw(sampler), first);
    sampler.reset();
    EXPECT_NE(draw(sampler), first);
  }
}

TEST(data_weighted_sampler, balanced_weights_draw_a_rare_class_as_often_as_the_others) {
  std::vector<int64_t> labels(900, 0);
  labels.insert(labels.end(), 90, 1);
  labels.insert(labels.end(), 10, 7);
  const auto weights = balanced_weights(at::tensor(labels));
  ASSERT_EQ(weights.size(), 1000u);
  EXPECT_DOUBLE_EQ(weights[0], 1.0 / 900);
  EXPECT_DOUBLE_EQ(weights[999], 1.0 / 10);
  std::map<int64_t, int> drawn;
  for (size_t rank = 0; rank < 4; ++rank)
    for (const size_t i : epoch_of(weights, 4, rank, {.num_samples = 6000})) ++drawn[labels[i]];
  for (const int64_t label : {0, 1, 7}) EXPECT_NEAR(drawn[label], 2000, 150) << label;

  EXPECT_TRUE(has(refusal([&] { balanced_weights(at::zeros({4})); }), "[samples] int64"));
  EXPECT_TRUE(has(refusal([&] {
                    balanced_weights(at::zeros({4, 1}, at::kLong));
                  }),
                  "[samples] int64"));
}

TEST(data_weighted_sampler, an_interrupted_epoch_goes_on_with_its_draws_on_other_ranks_too) {
  const std::vector<double> weights{1, 2, 3, 4, 5, 6, 7, 8};
  PrivateFolder folder;
  for (const bool replacement : {true, false}) {
    const Options options{.num_samples = 8, .replacement = replacement};
    const Indices whole = epoch_of(weights, 1, 0, options, 2);
    const std::string run_dir = folder / (replacement ? "with" : "without");
    {
      DistributedWeightedSampler sampler(weights, 1, 0, options);
      sampler.set_epoch(2);
      sampler.reset();
      sampler.next(6);  // what a loader draws ahead
      sampler.consumed(4);
      save(run_dir, 1, trireme::state_of(sampler));
    }
    for (size_t rank = 0; rank < 2; ++rank) {
      DistributedWeightedSampler sampler(weights, 2, rank, options);
      load(run_dir, trireme::state_of(sampler));
      sampler.reset();
      EXPECT_EQ(draw(sampler), (Indices{whole[4 + rank], whole[6 + rank]}));
    }
    auto others = weights;
    others[3] += 1;
    DistributedWeightedSampler sampler(others, 1, 0, options);
    EXPECT_TRUE(
        has(refusal([&] { load(run_dir, trireme::state_of(sampler)); }), "sampler.weights"));
  }
}

TEST(data_weighted_sampler, goes_through_torch_save_and_refuses_other_weights) {
  DistributedWeightedSampler sampler({1, 2, 3}, 1, 0), same({1, 2, 3}, 1, 0),
      others({1, 2, 4}, 1, 0), without({1, 2, 3}, 1, 0, {.replacement = false});
  sampler.reset();
  const size_t second = (sampler.next(2), sampler.consumed(1), epoch_of({1, 2, 3}, 1, 0, {})[1]);
  std::stringstream stream;
  torch::save(sampler, stream);
  torch::load(same, stream);
  same.reset();
  EXPECT_EQ(same.next(1).value()[0], second);
  for (auto* other : {&others, &without}) {
    stream.clear();
    stream.seekg(0);
    EXPECT_TRUE(has(refusal([&] { torch::load(*other, stream); }), "the weights or replacement"));
  }
}

struct Numbers : torch::data::datasets::Dataset<Numbers, int64_t> {
  int64_t get(size_t index) override { return static_cast<int64_t>(index); }
  torch::optional<size_t> size() const override { return 4; }
};

TEST(data_weighted_sampler, serves_a_loader_whose_batches_are_counted) {
  DistributedWeightedSampler sampler({0, 1, 0, 1}, 1, 0, {.num_samples = 40});
  auto loader = torch::data::make_data_loader(Numbers{}, sampler,
                                              torch::data::DataLoaderOptions(8).workers(2));
  size_t batches = 0;
  for (auto& batch : counted(*loader, sampler)) {
    for (const int64_t i : batch) EXPECT_EQ(i % 2, 1);
    EXPECT_EQ(sampler.position(), ++batches * 8);
  }
  EXPECT_EQ(batches, 5u);
}

TEST(data_weighted_sampler, refuses_what_nobody_could_draw_from) {
  using Sampler = DistributedWeightedSampler;
  EXPECT_TRUE(has(refusal([&] { Sampler({}, 1, 0); }), "there are no weights"));
  EXPECT_TRUE(has(refusal([&] { Sampler({0, 0}, 1, 0); }), "all 2 weights are 0"));
  EXPECT_TRUE(has(refusal([&] { Sampler({1, -1}, 1, 0); }), "weight 1 is -1"));
  EXPECT_TRUE(has(refusal([&] { Sampler({1, NAN}, 1, 0); }), "weight 1 is nan"));
  EXPECT_TRUE(has(refusal([&] { Sampler({INFINITY}, 1, 0); }), "weight 0 is inf"));
  EXPECT_TRUE(has(refusal([&] { Sampler({1e308, 1e308}, 1, 0); }), "the sum of the weights"));
  EXPECT_TRUE(has(refusal([&] {
                    Sampler({1, 1, 0}, 1, 0, {.replacement = false});
                  }),
                  "3 draws without replacement from 2 samples"));
  EXPECT_TRUE(has(refusal([&] { Sampler({1, 1}, 2, 2); }), "no rank 2 among 2"));
  Sampler sampler({1, 1}, 1, 0);
  EXPECT_TRUE(has(refusal([&] { sampler.reset(3); }), "2 weights for a data set of 3 samples"));
}

}  // namespace
}  // namespace trireme::testing::weighted_sampler_test
