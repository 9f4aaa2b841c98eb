// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/distributed_sampler.h"

#include <gtest/gtest.h>
#include <torch/data.h>
#include <torch/serialize.h>

#include <map>
#include <sstream>

#include "trireme/base/error.h"

namespace distributed_sampler_test {

using namespace trireme;

namespace {

std::vector<size_t> draw(DistributedSampler& sampler, size_t batch = 3) {
  std::vector<size_t> all;
  while (auto indices = sampler.next(batch))
    all.insert(all.end(), indices->begin(), indices->end());
  return all;
}

std::vector<size_t> epoch_of(size_t size, size_t world, size_t rank,
                             DistributedSamplerOptions options = {}, size_t epoch = 0) {
  DistributedSampler sampler(size, world, rank, options);
  sampler.set_epoch(epoch);
  sampler.reset();
  return draw(sampler);
}

struct Numbers : torch::data::datasets::Dataset<Numbers, int64_t> {
  explicit Numbers(size_t n) : n(n) {}
  int64_t get(size_t index) override { return static_cast<int64_t>(index); }
  torch::optional<size_t> size() const override { return n; }
  size_t n;
};

}  // namespace

TEST(data_distributed_sampler, shards_are_even_and_cover_everything) {
  for (size_t size = 1; size <= 20; ++size)
    for (size_t world = 1; world <= 8; ++world)
      for (bool shuffle : {false, true}) {
        std::map<size_t, int> counts;
        const size_t each = (size + world - 1) / world;
        for (size_t rank = 0; rank < world; ++rank) {
          const auto mine = epoch_of(size, world, rank, {.shuffle = shuffle});
          ASSERT_EQ(mine.size(), each);
          for (auto i : mine) ++counts[i];
        }
        ASSERT_EQ(counts.size(), size) << "every sample is drawn";
        ASSERT_LT(counts.rbegin()->first, size);
        const int least = static_cast<int>(each * world / size);
        for (auto [i, n] : counts)
          ASSERT_TRUE(n == least || n == least + 1) << "padding repeats evenly";
      }
}

TEST(data_distributed_sampler, drop_last_draws_nothing_twice) {
  for (size_t size = 8; size <= 20; ++size)
    for (size_t world = 1; world <= 8; ++world) {
      std::map<size_t, int> counts;
      for (size_t rank = 0; rank < world; ++rank) {
        const auto mine = epoch_of(size, world, rank, {.drop_last = true});
        ASSERT_EQ(mine.size(), size / world);
        for (auto i : mine) ++counts[i];
      }
      ASSERT_EQ(counts.size(), size / world * world);
    }
}

TEST(data_distributed_sampler, without_shuffle_it_deals_like_pytorch) {
  // torch.utils.data.DistributedSampler(range(10), 4, rank, shuffle=False): 2 samples of padding
  // from the start.
  EXPECT_EQ(epoch_of(10, 4, 0, {.shuffle = false}), (std::vector<size_t>{0, 4, 8}));
  EXPECT_EQ(epoch_of(10, 4, 2, {.shuffle = false}), (std::vector<size_t>{2, 6, 0}));
  EXPECT_EQ(epoch_of(10, 4, 3, {.shuffle = false}), (std::vector<size_t>{3, 7, 1}));
  EXPECT_EQ(epoch_of(10, 4, 3, {.shuffle = false, .drop_last = true}), (std::vector<size_t>{3, 7}));
}

TEST(data_distributed_sampler, order_depends_on_seed_and_epoch_alone) {
  EXPECT_EQ(epoch_of(50, 2, 1), epoch_of(50, 2, 1));
  EXPECT_NE(epoch_of(50, 2, 1), epoch_of(50, 2, 1, {}, 1));
  EXPECT_NE(epoch_of(50, 2, 1), epoch_of(50, 2, 1, {.seed = 1}));
}

TEST(data_distributed_sampler, reset_goes_on_to_the_next_epoch) {
  DistributedSampler sampler(50, 2, 0);
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 0u);
  const auto first = draw(sampler);
  EXPECT_FALSE(sampler.next(1));
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 1u);
  EXPECT_NE(draw(sampler), first);
  sampler.set_epoch(0);
  sampler.reset();
  EXPECT_EQ(draw(sampler), first);
}

TEST(data_distributed_sampler, batches_do_not_change_the_order) {
  DistributedSampler a(23, 2, 1), b(23, 2, 1);
  EXPECT_EQ(draw(a, 1), draw(b, 5));
}

TEST(data_distributed_sampler, goes_into_the_loader_of_libtorch) {
  DistributedSampler sampler(11, 2, 1);
  auto loader =
      torch::data::make_data_loader(Numbers(11), sampler, torch::data::DataLoaderOptions(4));
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> seen;
    for (auto& batch : *loader) seen.insert(seen.end(), batch.begin(), batch.end());
    EXPECT_EQ(seen.size(), 6u);
    EXPECT_EQ(sampler.epoch(), static_cast<size_t>(epoch)) << "our copy is the loader's";
    epochs.push_back(seen);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  sampler.set_epoch(0);
  std::vector<int64_t> again;
  for (auto& batch : *loader) again.insert(again.end(), batch.begin(), batch.end());
  EXPECT_EQ(again, epochs[0]);
}

TEST(data_distributed_sampler, goes_on_where_it_was_saved) {
  DistributedSampler sampler(40, 2, 1);
  sampler.set_epoch(3);
  sampler.reset();
  sampler.next(7);
  sampler.consumed(7);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  sampler.save(out);
  out.save_to(file);
  const auto rest = draw(sampler);

  torch::serialize::InputArchive in;
  in.load_from(file);
  DistributedSampler other(40, 2, 1);
  other.load(in);
  other.reset();  // what begin() of a loader does
  EXPECT_EQ(other.epoch(), 3u);
  EXPECT_EQ(draw(other), rest);
  other.reset();
  EXPECT_EQ(other.epoch(), 4u);
  EXPECT_EQ(draw(other).size(), 20u);
}

TEST(data_distributed_sampler, a_new_size_can_be_given) {
  DistributedSampler sampler(4, 2, 0);
  sampler.reset(10);
  EXPECT_EQ(draw(sampler).size(), 5u);
}

TEST(data_distributed_sampler, impossible_sizes_are_refused) {
  EXPECT_THROW(DistributedSampler(0, 1, 0), UsageError);
  EXPECT_THROW(DistributedSampler(4, 2, 2), UsageError);
  EXPECT_THROW(DistributedSampler(4, 0, 0), UsageError);
  EXPECT_THROW(DistributedSampler(2, 4, 0, {.drop_last = true}), UsageError);
}

}  // namespace distributed_sampler_test
