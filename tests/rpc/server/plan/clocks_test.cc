// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/plan/clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::rpc::plan {

using Ranks = std::vector<int>;

TEST(rpc_server_plan_clocks, a_synchronous_step_closes_when_everybody_has_given) {
  Clocks clocks(3, {});
  for (int r : {2, 0}) {
    clocks.come(r, 0);
    clocks.gave(r);
    EXPECT_TRUE(clocks.complete().empty());
  }
  EXPECT_EQ(clocks.waited_for(1), Ranks{1}) << "it has not even come";
  EXPECT_FALSE(clocks.may_begin(0, 1));
  clocks.come(1, 0);
  clocks.gave(1);
  EXPECT_EQ(clocks.complete(), (Ranks{0, 1, 2}));
  clocks.close();
  EXPECT_EQ(clocks.step(), 1);
  EXPECT_TRUE(clocks.may_begin(0, 1));
  EXPECT_TRUE(clocks.complete().empty());
}

TEST(rpc_server_plan_clocks, a_lost_worker_is_not_waited_for_and_what_it_gave_whole_counts) {
  Clocks clocks(3, {});
  for (int r = 0; r < 3; ++r) clocks.come(r, 0);
  clocks.gave(0);
  clocks.gave(2);
  clocks.go(2, Presence::lost);
  EXPECT_TRUE(clocks.complete().empty());
  clocks.gave(1);
  EXPECT_EQ(clocks.complete(), (Ranks{0, 1, 2}));
  clocks.close();
  clocks.gave(0);
  clocks.gave(1);
  EXPECT_EQ(clocks.complete(), (Ranks{0, 1}));
  EXPECT_EQ(clocks.lost(), Ranks{2});
}

TEST(rpc_server_plan_clocks, going_back_brings_everybody_to_one_step) {
  Clocks clocks(3, {});
  for (int r = 0; r < 3; ++r) clocks.come(r, 0);
  for (int i = 0; i < 5; ++i) {
    for (int r = 0; r < 3; ++r) clocks.gave(r);
    clocks.close();
  }
  clocks.gave(1);
  clocks.go(0, Presence::lost);
  clocks.go_back(3, {2});
  EXPECT_EQ(clocks.step(), 3);
  EXPECT_EQ(clocks.clocks(), (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(clocks.lost(), Ranks{2});
  EXPECT_EQ(clocks.waited_for(4), (Ranks{0, 1}));
}

TEST(rpc_server_plan_clocks, with_staleness_nobody_begins_more_than_that_ahead_of_the_slowest) {
  for (int64_t staleness : {0, 1, 4})
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      const int n = 1 + static_cast<int>(seed % 4);
      Clocks clocks(n, staleness);
      for (int r = 0; r < n; ++r) clocks.come(r, 0);
      for (int i = 0; i < 300; ++i) {
        const int r = static_cast<int>(random() % static_cast<unsigned>(n));
        const int64_t step = clocks.clock(r);
        const auto all = clocks.clocks();
        const int64_t slowest = *std::min_element(all.begin(), all.end());
        ASSERT_EQ(clocks.may_begin(r, step), step - slowest <= staleness);
        ASSERT_EQ(clocks.may_begin(r, step), clocks.waited_for(step).empty());
        if (clocks.may_begin(r, step)) clocks.gave(r);
      }
      const auto all = clocks.clocks();
      const auto [low, high] = std::minmax_element(all.begin(), all.end());
      EXPECT_LE(*high - *low, staleness + 1);
    }
}

TEST(rpc_server_plan_clocks, a_server_that_comes_back_waits_for_nobody_who_has_not_come_again) {
  Clocks clocks(2, 1);
  clocks.resume(20, {12, 8});
  EXPECT_EQ(clocks.step(), 20);
  EXPECT_TRUE(clocks.may_begin(0, 12));
  EXPECT_FALSE(clocks.nobody_is_here()) << "they will come";
  clocks.come(1, 9);
  EXPECT_FALSE(clocks.may_begin(0, 12));
  EXPECT_EQ(clocks.waited_for(12), Ranks{1});
  clocks.go(1, Presence::left);
  EXPECT_TRUE(clocks.nobody_is_here());
  EXPECT_TRUE(clocks.any(Presence::away)) << "worker 0 may have ended while the server was lost";
  clocks.come(0, 12);
  EXPECT_FALSE(clocks.nobody_is_here());
}

TEST(rpc_server_plan_clocks, numbers_that_are_none_are_refused) {
  EXPECT_THROW(Clocks(0, {}), UsageError);
  EXPECT_THROW(Clocks(2, -1), UsageError);
  EXPECT_FALSE(Clocks(2, {}).knows(2));
  EXPECT_FALSE(Clocks(2, {}).knows(-1));
}

}  // namespace trireme::rpc::plan
