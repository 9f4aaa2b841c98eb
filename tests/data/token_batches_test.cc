// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/token_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/refusals.h"
#include "trireme/base/philox.h"

namespace token_batches_test {

using namespace trireme;
using namespace trireme::testing;
using Picking = TokenBatchOptions::Picking;

namespace {
std::vector<int32_t> lengths_of(int64_t count, int32_t longest, uint64_t seed) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back(1 + static_cast<int32_t>(stable_hash({seed, static_cast<uint64_t>(i)}) %
                                           static_cast<uint64_t>(longest)));
  return all;
}
}  // namespace

TEST(data_token_batches, every_sequence_comes_once_an_epoch_and_no_batch_is_over_budget) {
  for (int64_t count : {0, 1, 2, 7, 40, 133})
    for (int32_t longest : {1, 5, 16})
      for (int64_t budget : {16, 17, 64})
        for (int64_t max_rows : {0, 1, 3})
          for (auto picking : {Picking::dataloader, Picking::random, Picking::seqlen}) {
            const auto lengths = lengths_of(count, longest, 5);
            const TokenBatches batches(lengths, {budget, 1, max_rows, picking, 9});
            for (int64_t epoch : {0, 1, 6}) {
              std::multiset<int64_t> seen;
              for (int64_t b = 0; b < batches.size(); ++b) {
                const auto ids = batches.of(epoch, b);
                ASSERT_FALSE(ids.empty());
                int64_t most = 0;
                for (int64_t id : ids)
                  most = std::max<int64_t>(most, lengths[static_cast<size_t>(id)]);
                EXPECT_LE(most * static_cast<int64_t>(ids.size()), budget);
                if (max_rows > 0) {
                  EXPECT_LE(static_cast<int64_t>(ids.size()), max_rows);
                }
                seen.insert(ids.begin(), ids.end());
              }
              EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
              EXPECT_EQ(static_cast<int64_t>(std::set<int64_t>(seen.begin(), seen.end()).size()),
                        count);
            }
            EXPECT_EQ(batches.sequences(), count);
            EXPECT_EQ(batches.left_out(), 0);
          }
}

TEST(data_token_batches, by_length_there_is_the_least_padding) {
  const auto lengths = lengths_of(500, 64, 3);
  auto padding = [&](Picking p) { return TokenBatches(lengths, {512, 1, 0, p, 1}).padding(); };
  EXPECT_LT(padding(Picking::seqlen), 0.1);
  EXPECT_GT(padding(Picking::random), 0.25);
  EXPECT_GT(padding(Picking::dataloader), 0.25);
}

TEST(data_token_batches, the_seed_alone_decides_and_epochs_differ) {
  const auto lengths = lengths_of(100, 16, 3);
  auto all = [&](uint64_t seed, int64_t epoch) {
    const TokenBatches b(lengths, {64, 1, 0, Picking::random, seed});
    std::vector<std::vector<int64_t>> list;
    for (int64_t i = 0; i < b.size(); ++i) list.push_back(b.of(epoch, i));
    return list;
  };
  EXPECT_EQ(all(1, 0), all(1, 0));
  EXPECT_NE(all(1, 0), all(1, 1));
  EXPECT_NE(all(1, 0), all(2, 0));
}

TEST(data_token_batches, too_small_batches_are_left_out_and_counted) {
  const TokenBatches b({8, 8, 8, 8, 16}, {16, 2, 0, Picking::dataloader, 1});
  EXPECT_EQ(b.size(), 2);
  EXPECT_EQ(b.left_out(), 1);
  EXPECT_EQ(b.sequences(), 4);
}

TEST(data_token_batches, what_cannot_be_is_refused) {
  EXPECT_TRUE(has(refusal([] {
                    TokenBatches({4, 17}, {.max_tokens = 16});
                  }),
                  "sequence 1 has 17 tokens"));
  EXPECT_TRUE(has(refusal([] { TokenBatches({4}, {}); }), "0 tokens"));
  EXPECT_TRUE(has(refusal([] { TokenBatches({4}, {16, 3, 2}); }), "3 to 2"));
  EXPECT_TRUE(has(refusal([] { TokenBatches({4}, {16}).of(0, 1); }), "no micro-batch 1 of 1"));
}

TEST(data_token_batches, the_rate_follows_the_batch_as_the_method_says) {
  EXPECT_EQ(batch_lr_factor("none", 3, 12), 1);
  EXPECT_EQ(batch_lr_factor("linear", 3, 12), 0.25);
  EXPECT_EQ(batch_lr_factor("sqrt", 3, 12), 0.5);
  EXPECT_TRUE(has(refusal([] { batch_lr_factor("cubic", 3, 12); }), "cubic"));
}

}  // namespace token_batches_test
