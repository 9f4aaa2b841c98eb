// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/subset.h"

#include <gtest/gtest.h>
#include <torch/data.h>

#include <algorithm>

#include "tests/support/refusals.h"
#include "trireme/data/distributed_sampler.h"
#include "trireme/data/source_dataset.h"
#include "trireme/data/sources/digits.h"

namespace trireme::testing::subset_test {
namespace {

using Indices = std::vector<size_t>;

struct Squares : torch::data::datasets::Dataset<Squares> {
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {torch::tensor(i * i), torch::tensor(i)};
  }
  torch::optional<size_t> size() const override { return 10; }
};

TEST(data_subset, has_the_samples_of_its_indices_in_their_order) {
  auto subset = Subset<Squares>({}, {7, 2, 2, 9}).map(torch::data::transforms::Stack<>());
  EXPECT_EQ(*subset.size(), 4u);
  const auto batch = subset.get_batch({3, 0, 2});
  EXPECT_TRUE(batch.data.equal(torch::tensor({81, 49, 4})));
  EXPECT_TRUE(batch.target.equal(torch::tensor({9, 7, 2})));
}

TEST(data_subset, of_batches_is_read_by_ranks_that_share_it) {
  const Indices evens{0, 2, 4, 6, 8, 10, 12, 14};
  std::vector<int64_t> seen;
  for (size_t rank = 0; rank < 2; ++rank) {
    Subset<SourceDataset> subset(
        SourceDataset(make_digits({.count = 16}),
                      [](MicroBatch& b) { b.target = torch::tensor(b.samples); }),
        evens);
    DistributedSampler sampler(*subset.size(), 2, rank);
    auto loader = torch::data::make_data_loader(subset, sampler, 3);
    for (auto& batch : *loader) {
      EXPECT_EQ(batch.data.size(0), batch.target.size(0));
      for (int64_t i = 0; i < batch.target.size(0); ++i)
        seen.push_back(batch.target[i].item<int64_t>());
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, std::vector<int64_t>(evens.begin(), evens.end()));
}

TEST(data_subset, fractions_become_the_lengths_that_torch_gives_them) {
  // len() of the parts of torch.utils.data.random_split(range(n), fractions), PyTorch 1.13.
  EXPECT_EQ(split_lengths(10, {.5, .5}), (Indices{5, 5}));
  EXPECT_EQ(split_lengths(11, {.3, .3, .4}), (Indices{4, 3, 4}));
  EXPECT_EQ(split_lengths(7, {.25, .25, .25, .25}), (Indices{2, 2, 2, 1}));
  EXPECT_EQ(split_lengths(10, {.9, .1}), (Indices{9, 1}));
}

TEST(data_subset, a_random_split_has_each_sample_once_and_is_the_same_everywhere) {
  const auto parts = random_split(100, {70, 20, 10}, 5);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].size(), 20u);
  Indices all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(all[i], i);
  EXPECT_EQ(random_split(100, {70, 20, 10}, 5), parts);
  EXPECT_NE(random_split(100, {70, 20, 10}, 6), parts);
}

TEST(data_subset, refusals_say_what_does_not_fit) {
  EXPECT_TRUE(has(refusal([&] { Subset<Squares> s({}, {}); }), "it has no samples"));
  EXPECT_TRUE(has(refusal([&] {
                    Subset<Squares> s({}, {1, 10});
                  }),
                  "no sample 10 in a data set of 10"));
  EXPECT_TRUE(has(refusal([&] { split_lengths(10, {.5, .6}); }), "add up to 1.1"));
  EXPECT_TRUE(has(refusal([&] { split_lengths(10, {1.5, -.5}); }), "1.5 is no fraction"));
  EXPECT_TRUE(has(refusal([&] { random_split(10, {5, 6}, 0); }), "add up to 11, and there are 10"));
}

TEST(data_subset, a_source_serves_as_a_data_set_and_its_collate_function_sees_the_ids) {
  const auto digits = make_digits({.count = 20});
  SourceDataset plain(digits), doubled(digits, [](MicroBatch&b) { b.input = b.input * 2; });
  EXPECT_EQ(*plain.size(), 20u);
  const auto want = digits->get({5, 3});
  const auto batch = plain.get_batch({5, 3});
  EXPECT_TRUE(batch.data.equal(want.input));
  EXPECT_TRUE(batch.target.equal(want.target));
  EXPECT_TRUE(doubled.get_batch({5, 3}).data.equal(want.input * 2));
  EXPECT_TRUE(has(refusal([&] { plain.get_batch({20}); }), "no sample 20 among 20"));
  SourceDataset without(digits, [](MicroBatch& b) { b.target = at::Tensor(); });
  EXPECT_TRUE(has(refusal([&] { without.get_batch({0}); }), "a batch has no target"));
  EXPECT_TRUE(has(refusal([&] { SourceDataset s(nullptr); }), "there is no source"));
}

}  // namespace
}  // namespace trireme::testing::subset_test
