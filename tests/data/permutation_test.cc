// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/permutation.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace permutation_test {

using namespace trireme;

TEST(data_permutation, visits_everything_once_for_every_small_size) {
  for (int64_t size = 1; size <= 300; ++size) {
    const Permutation order(size, 42);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const auto j = order(i);
      ASSERT_TRUE(j >= 0 && j < size);
      ASSERT_FALSE(seen[static_cast<size_t>(j)]);
      seen[static_cast<size_t>(j)] = true;
    }
  }
}

TEST(data_permutation, is_a_function_of_its_key) {
  const Permutation a(1000, 1), b(1000, 1), c(1000, 2);
  int same = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), b(i));
    same += a(i) == c(i);
  }
  EXPECT_LT(same, 10);
}

TEST(data_permutation, a_place_is_equally_likely_to_hold_each_item) {
  constexpr int kSize = 7, kKeys = 7000;
  int counts[kSize][kSize] = {};
  std::set<std::vector<int64_t>> orders;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Permutation order(kSize, key);
    std::vector<int64_t> all;
    for (int i = 0; i < kSize; ++i) all.push_back(order(i)), ++counts[i][all.back()];
    orders.insert(all);
  }
  for (auto& row : counts)
    for (int n : row) EXPECT_NEAR(n, kKeys / kSize, 150);  // 5 standard deviations
  EXPECT_GT(orders.size(), 3500u);                         // of 5040
}

TEST(data_permutation, huge_sizes_cost_no_memory) {
  const int64_t size = int64_t{1} << 40;
  const Permutation order(size - 12345, 9);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) seen.insert(order(i));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), size - 12345);
}

}  // namespace permutation_test
