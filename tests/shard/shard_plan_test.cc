// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/shard_plan.h"

#include <gtest/gtest.h>

namespace trireme::shard_plan_test {
namespace {

// Every element of every parameter lies in exactly one piece, for all small sizes and ranks <= 16.
TEST(shard_shard_plan, pieces_cover_each_parameter_once_for_all_small_sizes) {
  constexpr int64_t kAlign = 4;
  std::vector<std::vector<int64_t>> lists;
  for (int64_t a = 0; a <= 9; ++a)
    for (int64_t b = 0; b <= 9; ++b)
      for (int64_t c : {0, 1, 3, 4, 5, 17}) lists.push_back({a, b, c});
  for (const auto& numels : lists)
    for (int ranks = 1; ranks <= 16; ++ranks) {
      const ShardPlan plan = plan_shards(numels, ranks, kAlign);
      std::vector<std::vector<int>> owners(numels.size());
      for (size_t p = 0; p < numels.size(); ++p)
        owners[p].assign(static_cast<size_t>(numels[p]), -1);
      for (int r = 0; r < ranks; ++r)
        for (const ShardPiece& piece : pieces_of(plan, r)) {
          ASSERT_GT(piece.length, 0);
          ASSERT_LE(piece.offset + piece.length, plan.shard);
          ASSERT_EQ(plan.shard * r + piece.offset, plan.offsets[piece.parameter] + piece.begin);
          for (int64_t i = 0; i < piece.length; ++i) {
            int& owner = owners[piece.parameter][static_cast<size_t>(piece.begin + i)];
            ASSERT_EQ(owner, -1);
            owner = r;
          }
        }
      for (const auto& of_parameter : owners)
        for (int owner : of_parameter) ASSERT_GE(owner, 0);
    }
}

TEST(shard_shard_plan, shards_are_equal_aligned_and_waste_at_most_a_block_a_parameter_and_rank) {
  for (int ranks = 1; ranks <= 16; ++ranks)
    for (int64_t n : {1, 1023, 1024, 1025, 5000, 100000}) {
      const std::vector<int64_t> numels{n, 7, n};
      const ShardPlan plan = plan_shards(numels, ranks);
      EXPECT_EQ(plan.shard % kShardAlign, 0);
      EXPECT_LT(plan.flat_elements() - (2 * n + 7), kShardAlign * (3 + ranks));
      for (int64_t offset : plan.offsets) EXPECT_EQ(offset % kShardAlign, 0);
    }
}

// So a block of the norms lies on one rank.
TEST(shard_shard_plan, a_piece_begins_at_a_block_of_its_parameter) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const ShardPlan plan = plan_shards({3000, 1, 70000, 1024}, ranks);
    for (int r = 0; r < ranks; ++r)
      for (const ShardPiece& piece : pieces_of(plan, r)) EXPECT_EQ(piece.begin % kShardAlign, 0);
  }
}

TEST(shard_shard_plan, a_rank_has_at_most_one_piece_of_a_parameter) {
  const ShardPlan plan = plan_shards({5000, 5000, 5000}, 3);
  for (int r = 0; r < 3; ++r) {
    std::vector<int> seen(3);
    for (const ShardPiece& piece : pieces_of(plan, r)) EXPECT_EQ(seen[piece.parameter]++, 0);
  }
}

}  // namespace
}  // namespace trireme::shard_plan_test
