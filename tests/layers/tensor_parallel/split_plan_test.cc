// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/split_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace split_plan_test {

using namespace trireme;

TEST(layers_tensor_parallel_split_plan, parts_cover_the_whole_and_differ_by_one_granule_at_most) {
  for (int64_t total = 1; total <= 40; ++total)
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      for (int64_t granule = 1; granule <= 6; ++granule) {
        const auto parts = split_evenly(total, ranks, granule);
        ASSERT_EQ(parts.size(), static_cast<size_t>(ranks));
        int64_t next = 0, shortest = total, longest = 0;
        for (const Part& part : parts) {
          ASSERT_EQ(part.begin, next);
          ASSERT_GE(part.length, 0);
          next = part.end();
          ASSERT_TRUE(next % granule == 0 || next == total) << total << " " << ranks;
          shortest = std::min(shortest, part.length);
          longest = std::max(longest, part.length);
        }
        ASSERT_EQ(next, total);
        ASSERT_LE(longest - shortest, granule) << total << " " << ranks << " " << granule;
        ASSERT_EQ(fault_of_split("a width", total, ranks, granule).empty(), shortest > 0);
      }
}

TEST(layers_tensor_parallel_split_plan,
     what_leaves_a_rank_with_nothing_is_refused_with_its_numbers) {
  EXPECT_EQ(fault_of_split("a vocabulary", 3, 4),
            "a vocabulary of 3 in granules of 1 gives 3 parts for 4 ranks of the tensor-parallel "
            "group: use fewer ranks");
  EXPECT_EQ(fault_of_split("a width", 64, 3, 32),
            "a width of 64 in granules of 32 gives 2 parts for 3 ranks of the tensor-parallel "
            "group: use fewer ranks or a smaller granule");
  EXPECT_FALSE(fault_of_split("a width", 0, 1).empty());
  EXPECT_FALSE(fault_of_split("a width", 4, 1, 0).empty());
}

TEST(layers_tensor_parallel_split_plan,
     every_query_head_is_on_one_rank_with_the_keys_that_it_uses) {
  int plans = 0;
  for (int64_t heads = 1; heads <= 24; ++heads)
    for (int64_t kv = 1; kv <= heads; ++kv)
      for (int64_t ranks = 1; ranks <= 12; ++ranks) {
        const bool divides =
            heads % kv == 0 && heads % ranks == 0 && (kv % ranks == 0 || ranks % kv == 0);
        ASSERT_EQ(fault_of_heads(heads, kv, ranks).empty(), divides)
            << heads << " " << kv << " " << ranks;
        if (!divides) continue;
        ++plans;
        std::set<int64_t> queries;
        std::map<int64_t, int64_t> holders, speakers;
        for (int64_t r = 0; r < ranks; ++r) {
          const HeadParts parts = split_heads(heads, kv, ranks, r);
          ASSERT_EQ(parts.queries.length % parts.keys.length, 0);
          const int64_t each = parts.queries.length / parts.keys.length;
          for (int64_t q = 0; q < parts.queries.length; ++q) {
            const int64_t head = parts.queries.begin + q;
            ASSERT_TRUE(queries.insert(head).second);
            ASSERT_EQ(parts.keys.begin + q / each, head / (heads / kv));
          }
          for (int64_t k = parts.keys.begin; k < parts.keys.end(); ++k) {
            ++holders[k];
            speakers[k] += parts.speaks;
          }
          const auto rows = qkv_rows(parts, heads, kv, 8);
          ASSERT_EQ(rows[0], (Part{parts.queries.begin * 8, parts.queries.length * 8}));
          ASSERT_EQ(rows[1].begin, heads * 8 + parts.keys.begin * 8);
          ASSERT_EQ(rows[2].begin, rows[1].begin + kv * 8);
          ASSERT_LE(rows[2].end(), (heads + 2 * kv) * 8);
        }
        ASSERT_EQ(queries.size(), static_cast<size_t>(heads));
        ASSERT_EQ(holders.size(), static_cast<size_t>(kv));
        for (const auto& [head, count] : holders) {
          ASSERT_EQ(count, split_heads(heads, kv, ranks, 0).sharers);
          ASSERT_EQ(speakers[head], 1) << "one rank counts each head";
        }
      }
  EXPECT_GT(plans, 100);
}

TEST(layers_tensor_parallel_split_plan, heads_that_do_not_divide_are_refused_with_their_numbers) {
  EXPECT_EQ(fault_of_heads(10, 10, 4),
            "10 query heads do not divide among 4 tensor-parallel ranks: choose a number of ranks "
            "that divides 10");
  EXPECT_EQ(fault_of_heads(12, 5, 2),
            "12 query heads do not divide among 5 key/value heads: choose a multiple");
  EXPECT_EQ(fault_of_heads(12, 6, 4),
            "6 key/value heads and 4 tensor-parallel ranks: one of the two numbers must be a "
            "multiple of the other");
  EXPECT_FALSE(fault_of_heads(0, 0, 1).empty());
}

}  // namespace split_plan_test
