// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/read_deal.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/checkpoint/load/verify.h"

namespace read_deal_test {

using namespace trireme;

namespace {

using Ranges = std::vector<BlockRange>;

std::vector<int> counts_of(const Ranges& ranges, int64_t blocks) {
  std::vector<int> counts(static_cast<size_t>(blocks), 0);
  for (const BlockRange& range : ranges)
    for (int64_t b = range.begin; b < range.end; ++b) ++counts.at(static_cast<size_t>(b));
  return counts;
}

int64_t total(const Ranges& ranges) {
  int64_t n = 0;
  for (const BlockRange& range : ranges) n += range.end - range.begin;
  return n;
}

}  // namespace

TEST(checkpoint_read_deal, what_all_want_is_dealt_in_equal_runs) {
  const Ranges all{{0, 100}};
  EXPECT_EQ(deal_reads({all, all, all, all}),
            (std::vector<Ranges>{{{0, 25}}, {{25, 50}}, {{50, 75}}, {{75, 100}}}));
  EXPECT_EQ(deal_reads({all}), std::vector<Ranges>{all});
  EXPECT_EQ(deal_reads({{}, {}}), (std::vector<Ranges>{{}, {}}));
}

TEST(checkpoint_read_deal, what_one_wants_alone_it_reads_and_others_take_more_of_the_rest) {
  const auto dealt = deal_reads({{{0, 10}, {50, 60}}, {{0, 10}}});
  EXPECT_EQ(total(dealt[0]), 10);
  EXPECT_EQ(dealt[1], (Ranges{{0, 10}}));
}

TEST(checkpoint_read_deal, ranges_are_joined_where_they_touch) {
  EXPECT_EQ(joined({{5, 7}, {0, 2}, {2, 3}, {4, 4}, {6, 9}, {1, 2}}), (Ranges{{0, 3}, {5, 9}}));
}

TEST(checkpoint_read_deal, what_is_in_both_and_in_one_alone_is_that_of_the_blocks_one_by_one) {
  constexpr int64_t kBlocks = 9;  // every pair of sets
  const auto ranges_of = [](unsigned set) {
    Ranges ranges;
    for (int64_t b = 0; b < kBlocks; ++b)
      if (set >> b & 1U) ranges.push_back({b, b + 1});
    return joined(std::move(ranges));
  };
  for (unsigned a = 0; a < 1U << kBlocks; ++a)
    for (unsigned b = 0; b < 1U << kBlocks; ++b) {
      const Ranges x = ranges_of(a), y = ranges_of(b);
      ASSERT_EQ(in_both(x, y), ranges_of(a & b)) << a << " " << b;
      ASSERT_EQ(without(x, y), ranges_of(a & ~b)) << a << " " << b;
    }
}

TEST(checkpoint_read_deal, each_block_that_is_wanted_is_read_once_by_a_rank_that_wants_it) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    const int64_t blocks = 1 + static_cast<int64_t>(random() % 60);
    std::vector<Ranges> wanted(1 + random() % 5);
    std::vector<int> wanters(static_cast<size_t>(blocks), 0);
    for (Ranges& ranges : wanted) {
      for (size_t i = random() % 4; i > 0; --i) {
        const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(blocks));
        ranges.push_back(
            {begin,
             begin + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(blocks - begin))});
      }
      ranges = joined(std::move(ranges));
      const auto counts = counts_of(ranges, blocks);
      for (size_t b = 0; b < counts.size(); ++b) wanters[b] += counts[b];
    }
    const auto dealt = deal_reads(wanted);
    ASSERT_EQ(dealt.size(), wanted.size());
    std::vector<int> read(static_cast<size_t>(blocks), 0);
    for (size_t r = 0; r < dealt.size(); ++r) {
      const auto mine = counts_of(dealt[r], blocks), own = counts_of(wanted[r], blocks);
      for (size_t b = 0; b < mine.size(); ++b) {
        EXPECT_LE(mine[b], own[b]) << "it does not want it";
        read[b] += mine[b];
      }
    }
    for (size_t b = 0; b < read.size(); ++b) EXPECT_EQ(read[b], wanters[b] > 0) << b;
  }
}

// All pairs of sets on one host and on two; a third rank wants what is in one of them.
TEST(checkpoint_read_deal, who_shares_a_block_is_what_the_blocks_one_by_one_say) {
  constexpr int64_t kBlocks = 5;
  const auto wanted = [](const std::string& host, unsigned set) {
    Ranges ranges;
    for (int64_t b = 0; b < kBlocks; ++b)
      if (set >> b & 1U) ranges.push_back({b, b + 1});
    BlocksWanted w{.where = host, .ends = {}};
    for (const BlockRange& range : joined(std::move(ranges)))
      w.ends.insert(w.ends.end(), {range.begin, range.end});
    return w;
  };
  const auto has = [](unsigned set, int64_t b) { return (set >> b & 1U) != 0; };
  for (const std::string other : {"a", "b", ""})
    for (unsigned x = 0; x < 1U << kBlocks; ++x)
      for (unsigned y = 0; y < 1U << kBlocks; ++y) {
        const unsigned z = x | y;
        const std::vector<BlocksWanted> all{wanted("a", x), wanted(other, y), wanted("a", z)};
        const std::vector<unsigned> sets{x, y, z};
        const bool one_host = other == "a";
        std::vector<BlockShare> shares;
        for (size_t r = 0; r < 3; ++r) shares.push_back(share_of(all, r));
        for (size_t r = 0; r < 3; ++r)
          for (int64_t b = 0; b < kBlocks; ++b) {
            bool with_others = false;
            int owners = 0;
            for (size_t q = 0; q < 3; ++q) {
              const bool same_host =
                  q == r || (!all[r].where.empty() && all[q].where == all[r].where);
              if (q != r && same_host && has(sets[q], b)) with_others = true;
              if (same_host) owners += has_block(shares[q].own, b);
            }
            ASSERT_EQ(has_block(shares[r].alone, b), has(sets[r], b) && !with_others);
            ASSERT_EQ(has_block(shares[r].of_all, b), one_host && has(x & y & z, b));
            ASSERT_EQ(owners, has(sets[r], b) || with_others ? 1 : 0);
            ASSERT_TRUE(has(sets[r], b) || !has_block(shares[r].own, b));
          }
      }
}

}  // namespace read_deal_test
