// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/recompute/recompute_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trireme/base/error.h"

namespace recompute_plan_test {

using namespace trireme;

namespace {

int64_t count(const std::vector<bool>& chosen) {
  return std::count(chosen.begin(), chosen.end(), true);
}

/// Over all subsets: the fewest blocks that fit; -1 where none does.
int64_t fewest(const ActivationBytes& bytes, int64_t budget) {
  const size_t n = bytes.blocks.size();
  int64_t best = -1;
  for (size_t mask = 0; mask < (size_t{1} << n); ++mask) {
    std::vector<bool> chosen(n);
    for (size_t i = 0; i < n; ++i) chosen[i] = mask >> i & 1;
    if (peak_bytes(bytes, chosen) <= budget && (best < 0 || count(chosen) < best))
      best = count(chosen);
  }
  return best;
}

void expect_optimal(const ActivationBytes& bytes, int64_t budget) {
  const RecomputePlan plan = plan_recompute(bytes, budget);
  const int64_t best = fewest(bytes, budget);
  ASSERT_EQ(plan.fits, best >= 0);
  ASSERT_EQ(plan.recompute.size(), bytes.blocks.size());
  ASSERT_EQ(plan.blocks, count(plan.recompute));
  ASSERT_EQ(plan.peak, peak_bytes(bytes, plan.recompute));
  if (plan.fits) {
    ASSERT_EQ(plan.blocks, best);
    ASSERT_LE(plan.peak, budget);
  } else {
    ASSERT_EQ(plan.blocks, static_cast<int64_t>(bytes.blocks.size()));
    ASSERT_GT(plan.peak, budget);
  }
}

}  // namespace

TEST(tensor_recompute_plan, equal_blocks_of_every_number_and_budget_take_the_fewest) {
  for (size_t n = 0; n <= 8; ++n)
    for (int64_t after : {0, 3, 20}) {
      ActivationBytes bytes{2, std::vector<BlockBytes>(n, {10, 1}), after};
      for (int64_t budget = 0; budget <= 2 + 10 * static_cast<int64_t>(n) + after + 1; ++budget)
        expect_optimal(bytes, budget);
    }
}

TEST(tensor_recompute_plan, unequal_blocks_take_the_fewest_too) {
  std::mt19937 draw(3);
  auto below = [&](int64_t most) { return static_cast<int64_t>(draw() % (most + 1)); };
  for (int round = 0; round < 400; ++round) {
    ActivationBytes bytes{below(5), {}, below(8)};
    for (int64_t i = below(6); i >= 0; --i) {
      const int64_t kept = below(12);
      bytes.blocks.push_back({kept, below(kept)});
    }
    int64_t all = bytes.before + bytes.after;
    for (const BlockBytes& b : bytes.blocks) all += b.kept;
    for (int64_t budget = 0; budget <= all; ++budget) expect_optimal(bytes, budget);
  }
}

TEST(tensor_recompute_plan, the_peak_is_at_the_end_of_forward_or_in_a_block_computed_again) {
  const ActivationBytes bytes{1, {{10, 2}, {10, 2}, {10, 2}}, 5};
  EXPECT_EQ(peak_bytes(bytes, {false, false, false}), 36);
  EXPECT_EQ(peak_bytes(bytes, {true, true, true}), 15);   // the third, behind two outputs
  EXPECT_EQ(peak_bytes(bytes, {true, true, false}), 20);  // the end of forward
  EXPECT_EQ(peak_bytes(bytes, {false, false, true}), 31);
}

TEST(tensor_recompute_plan, more_blocks_never_need_more) {
  const ActivationBytes bytes{1, {{9, 2}, {4, 4}, {12, 0}, {7, 3}}, 2};
  for (size_t mask = 0; mask < 16; ++mask)
    for (size_t more = 0; more < 4; ++more) {
      std::vector<bool> a(4), b(4);
      for (size_t i = 0; i < 4; ++i) a[i] = mask >> i & 1, b[i] = a[i] || i == more;
      EXPECT_LE(peak_bytes(bytes, b), peak_bytes(bytes, a));
    }
}

TEST(tensor_recompute_plan, every_kth_counts_from_the_k_th) {
  EXPECT_EQ(every_kth(5, 0), std::vector<bool>(5, false));
  EXPECT_EQ(every_kth(5, 1), std::vector<bool>(5, true));
  EXPECT_EQ(every_kth(5, 2), (std::vector<bool>{false, true, false, true, false}));
  EXPECT_EQ(every_kth(2, 3), std::vector<bool>(2, false));
  EXPECT_TRUE(every_kth(0, 1).empty());
  EXPECT_THROW(every_kth(2, -1), UsageError);
}

TEST(tensor_recompute_plan, sizes_that_cannot_be_are_refused) {
  EXPECT_THROW(plan_recompute({-1, {}, 0}, 1), UsageError);
  EXPECT_THROW(plan_recompute({0, {{1, 2}}, 0}, 1), UsageError);
  EXPECT_THROW(plan_recompute({0, {{1, -2}}, 0}, 1), UsageError);
}

}  // namespace recompute_plan_test
