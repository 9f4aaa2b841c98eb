// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/global_batch.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "trireme/base/error.h"

namespace global_batch_test {

using namespace trireme;

namespace {
GlobalBatch plan(int64_t size, int64_t b, int64_t m, bool shuffle = true, uint64_t seed = 42) {
  return GlobalBatch(
      {.dataset_size = size, .leaf_size = b, .leaves = m, .seed = seed, .shuffle = shuffle});
}
}  // namespace

TEST(data_global_batch, every_world_reads_the_same_leaves_in_the_same_order) {
  for (int64_t b = 1; b <= 3; ++b)
    for (int64_t m : {1, 2, 4, 6, 8})
      for (int64_t size = b * m; size <= b * m * 3 + 1; ++size) {
        const auto p = plan(size, b, m);
        for (int64_t step = 0; step < 2 * p.steps_per_epoch() + 1; ++step) {
          std::vector<int64_t> whole;
          for (int64_t g = 0; g < m; ++g)
            for (auto id : p.leaf(step, g).ids) whole.push_back(id);
          for (int world = 1; world <= m; ++world) {
            if (m % world) continue;
            std::vector<int64_t> ids;
            int64_t next_leaf = 0;
            for (int rank = 0; rank < world; ++rank) {
              const auto leaves = p.leaves_of(rank, world, step);
              ASSERT_EQ(static_cast<int64_t>(leaves.size()), m / world);
              for (const auto& leaf : leaves) {
                ASSERT_EQ(leaf.index, next_leaf);
                ASSERT_EQ(leaf.first, (step * m + next_leaf) * b);
                ASSERT_EQ(static_cast<int64_t>(leaf.ids.size()), b);
                ids.insert(ids.end(), leaf.ids.begin(), leaf.ids.end());
                ++next_leaf;
              }
            }
            ASSERT_EQ(ids, whole);
          }
        }
      }
}

TEST(data_global_batch, leaves_dealt_unevenly_are_those_of_the_step_and_differ_by_one) {
  for (int64_t m = 1; m <= 9; ++m)
    for (int world = 1; world <= m; ++world) {
      const auto p = plan(4 * m, 2, m);
      int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const auto leaves = p.leaves_of(rank, world, 0, Deal::uneven);
        const auto count = static_cast<int64_t>(leaves.size());
        ASSERT_TRUE(count == m / world || count == m / world + 1) << m << " " << world;
        for (const auto& leaf : leaves) {
          ASSERT_EQ(leaf.index, next);
          ASSERT_EQ(leaf.ids, p.leaf(0, next++).ids);
        }
      }
      ASSERT_EQ(next, m);
    }
}

TEST(data_global_batch, an_epoch_reads_no_sample_twice_and_drops_less_than_a_step) {
  for (int64_t b = 1; b <= 4; ++b)
    for (int64_t m : {1, 2, 4})
      for (int64_t size = b * m; size <= 40; ++size) {
        const auto p = plan(size, b, m);
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          std::set<int64_t> seen;
          int64_t count = 0;
          for (int64_t i = 0; i < p.steps_per_epoch(); ++i)
            for (int64_t g = 0; g < m; ++g)
              for (auto id : p.leaf(epoch * p.steps_per_epoch() + i, g).ids) {
                ASSERT_TRUE(id >= 0 && id < size);
                seen.insert(id);
                ++count;
              }
          ASSERT_EQ(static_cast<int64_t>(seen.size()), count);
          ASSERT_LT(size - count, b * m);
        }
      }
}

TEST(data_global_batch, without_drop_last_an_epoch_reads_every_sample_once) {
  for (int64_t b = 1; b <= 3; ++b)
    for (int64_t m : {1, 2, 4})
      for (int64_t size = 1; size <= 30; ++size) {
        const GlobalBatch p(
            {.dataset_size = size, .leaf_size = b, .leaves = m, .drop_last = false});
        ASSERT_EQ(p.steps_per_epoch(), (size + b * m - 1) / (b * m));
        std::set<int64_t> places;
        for (int64_t epoch = 0; epoch < 2; ++epoch) {
          std::multiset<int64_t> seen;
          for (int64_t i = 0; i < p.steps_per_epoch(); ++i) {
            const int64_t step = epoch * p.steps_per_epoch() + i;
            int64_t samples = 0, least = b, most = 0;
            for (int64_t g = 0; g < m; ++g) {
              const Leaf leaf = p.leaf(step, g);
              const auto count = static_cast<int64_t>(leaf.ids.size());
              seen.insert(leaf.ids.begin(), leaf.ids.end());
              samples += count;
              least = std::min(least, count);
              most = std::max(most, count);
              for (int64_t k = 0; k < count; ++k)
                ASSERT_TRUE(places.insert(leaf.first + k).second) << "keys of dropout are unique";
            }
            ASSERT_EQ(samples, p.samples_of(step));
            ASSERT_LE(most, b);
            ASSERT_LE(most - least, 1) << "leaves share what is left evenly";
          }
          ASSERT_EQ(static_cast<int64_t>(seen.size()), size);
          ASSERT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
        }
      }
}

TEST(data_global_batch, an_epoch_has_another_order_than_the_last) {
  const auto p = plan(64, 4, 2);
  EXPECT_EQ(p.steps_per_epoch(), 8);
  EXPECT_EQ(p.epoch_of(8), 1);
  EXPECT_NE(p.leaf(0, 0).ids, p.leaf(8, 0).ids);
  EXPECT_NE(plan(64, 4, 2, true, 43).leaf(0, 0).ids, p.leaf(0, 0).ids);
}

TEST(data_global_batch, ranks_times_accumulation_is_the_number_of_leaves) {
  // Two ranks that accumulate twice read what four ranks read: only who holds a leaf differs.
  const auto p = plan(64, 2, 4);
  auto two = p.leaves_of(1, 2, 3);
  EXPECT_EQ(two[0].ids, p.leaves_of(2, 4, 3)[0].ids);
  EXPECT_EQ(two[1].ids, p.leaves_of(3, 4, 3)[0].ids);
}

TEST(data_global_batch, without_shuffle_samples_come_in_order) {
  const auto p = plan(13, 2, 3, false);
  std::vector<int64_t> ids;
  for (int64_t step = 0; step < 2; ++step)
    for (const auto& leaf : p.leaves_of(0, 1, step))
      ids.insert(ids.end(), leaf.ids.begin(), leaf.ids.end());
  std::vector<int64_t> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(ids, expected);
}

TEST(data_global_batch, impossible_batches_are_refused) {
  EXPECT_THROW(plan(7, 2, 4), UsageError);
  EXPECT_THROW(plan(8, 0, 4), UsageError);
  EXPECT_THROW(plan(8, 1, 0), UsageError);
  EXPECT_THROW(plan(8, INT64_MAX / 2, 4), UsageError) << "no overflow";
  EXPECT_THROW(plan(8, 1, 4).leaves_of(0, 3, 0), UsageError);
  EXPECT_THROW(plan(8, 1, 4).leaves_of(2, 2, 0), UsageError);
  EXPECT_THROW(plan(8, 1, 4).leaf(0, 4), UsageError);
}

}  // namespace global_batch_test
