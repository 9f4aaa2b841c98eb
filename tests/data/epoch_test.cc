// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/data/loader.h"
#include "trireme/data/share_deal.h"
#include "trireme/data/token_steps.h"

// A source that shows a sample differently in each epoch is told the epoch by every loader.
namespace trireme::epoch_test {
namespace {

struct Epochs : DataSource {
  int64_t size() const override { return 12; }
  std::string describe() const override { return "epochs"; }
  std::vector<int32_t> lengths() const override { return std::vector<int32_t>(12, 4); }
  MicroBatch get(const std::vector<int64_t>& ids) const override { return get_in_epoch(ids, 0); }
  MicroBatch get_in_epoch(const std::vector<int64_t>& ids, int64_t epoch) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    return {at::full({rows}, epoch, at::kLong), {}, ids, rows};
  }
};

std::vector<int64_t> epochs_of(const PrefetchingLoader::MakeBatch& make, int64_t steps) {
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < steps; ++step) {
    const Batch batch = make(step);
    for (const MicroBatch& micro : batch)
      EXPECT_TRUE(micro.input.eq(batch[0].input[0]).all().item<bool>());
    seen.push_back(batch[0].input[0].item<int64_t>());
  }
  return seen;
}

TEST(data_epoch, loaders_tell_a_source_the_epoch_of_each_step) {
  const auto source = std::make_shared<Epochs>();
  const std::vector<int64_t> expected{0, 0, 0, 1, 1, 1, 2, 2};
  const GlobalBatch plan({.dataset_size = 12, .leaf_size = 2, .leaves = 2});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(epochs_of(leaf_batches(source, plan, rank, 2), 8), expected);
    const auto deal = std::make_shared<ShareDeal>(Shares{3, 1});
    EXPECT_EQ(epochs_of(share_batches(source, plan, rank, deal, 2), 8), expected);
    const auto steps = std::make_shared<TokenSteps>(
        source->lengths(), TokenBatchOptions{.max_tokens = 8}, 2);  // 6 micro-batches of 2
    EXPECT_EQ(epochs_of(token_step_batches(source, steps, rank, 2), 8), expected);
  }
}

TEST(data_epoch, a_run_that_goes_on_in_the_middle_of_an_epoch_is_still_in_it) {
  const GlobalBatch plan({.dataset_size = 12,
                          .leaf_size = 2,
                          .leaves = 2,
                          .origin = {.step = 100, .at = {.epoch = 5, .sample = 8}, .number = 68}});
  const auto make = leaf_batches(std::make_shared<Epochs>(), plan, 0, 1);
  EXPECT_EQ(make(100)[0].input[0].item<int64_t>(), 5);
  EXPECT_EQ(make(101)[0].input[0].item<int64_t>(), 6);
}

}  // namespace
}  // namespace trireme::epoch_test
