// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/id_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trireme::rpc_id_window_test {

using rpc::detail::IdWindow;

TEST(rpc_id_window, takes_each_number_once_in_any_order) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<uint64_t> ids(200);
    for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
    std::shuffle(ids.begin(), ids.end(), random);
    IdWindow window;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_TRUE(window.take(ids[i]));
      for (size_t j = 0; j <= i; ++j) ASSERT_FALSE(window.take(ids[j])) << ids[j];
    }
  }
}

TEST(rpc_id_window, one_that_is_late_holds_nobody_up) {
  IdWindow window;
  for (uint64_t id = 1; id < 1'000'000; ++id) ASSERT_TRUE(window.take(id));
  EXPECT_TRUE(window.take(0));
  EXPECT_FALSE(window.take(0));
  EXPECT_TRUE(window.take(UINT64_MAX));
  EXPECT_FALSE(window.take(UINT64_MAX));
}

TEST(rpc_id_window, more_gaps_than_anybody_has_are_not_taken) {
  IdWindow window;
  for (uint64_t i = 0; i < IdWindow::kMostRanges; ++i) ASSERT_TRUE(window.take(2 * i));
  EXPECT_FALSE(window.take(uint64_t{1} << 40));
  EXPECT_TRUE(window.take(1));  // closes one
  EXPECT_TRUE(window.take(uint64_t{1} << 40));
}

}  // namespace trireme::rpc_id_window_test
