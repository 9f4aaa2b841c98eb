// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/restart_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trireme::launch::restart_budget_test {
namespace {

using std::chrono::seconds;

const Clock::time_point kStart = Clock::now();

TEST(launch_restart_budget, without_a_window_counts_those_of_the_whole_job) {
  RestartBudget budget(2, Duration::zero());
  EXPECT_EQ(budget.left(kStart), 2);
  budget.spend(kStart);
  EXPECT_EQ(budget.left(kStart + seconds(1 << 30)), 1);
  budget.spend(kStart + seconds(1 << 30));
  EXPECT_EQ(budget.left(kStart + seconds(1 << 30)), 0);
  EXPECT_EQ(RestartBudget(0, Duration::zero()).left(kStart), 0);
  EXPECT_EQ(RestartBudget(0, seconds(1)).left(kStart), 0);
}

TEST(launch_restart_budget, those_of_before_a_launcher_came_count_from_then) {
  RestartBudget budget(3, seconds(10));
  budget.spend_until(2, kStart);
  budget.spend_until(1, kStart);
  EXPECT_EQ(budget.spent(), 2);
  EXPECT_EQ(budget.left(kStart), 1);
  EXPECT_EQ(budget.left(kStart + seconds(10)), 3);
}

// Against counting all of them anew.
TEST(launch_restart_budget, no_time_of_that_length_has_more_than_so_many) {
  std::mt19937 random(21);
  for (int round = 0; round < 500; ++round) {
    const int most = static_cast<int>(random() % 5), window = 1 + static_cast<int>(random() % 20);
    RestartBudget budget(most, seconds(window));
    std::vector<Clock::time_point> all;
    Clock::time_point now = kStart;
    for (int i = 0; i < 50; ++i) {
      now += seconds(random() % 8);
      const auto within = std::count_if(all.begin(), all.end(),
                                        [&](const auto& at) { return now - at < seconds(window); });
      ASSERT_EQ(budget.left(now), most - within);
      if (budget.left(now) == 0) continue;
      budget.spend(now);
      all.push_back(now);
      EXPECT_EQ(budget.spent(), static_cast<int>(all.size()));
    }
  }
}

}  // namespace
}  // namespace trireme::launch::restart_budget_test
