// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/plan/recovery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::rpc::plan {

TEST(rpc_server_plan_recovery, servers_that_have_made_no_step_begin_afresh) {
  const Decision decision = decide({"a", "b"}, {{0, true, {}, {}}, {0, true, {}, {}}}, 0);
  EXPECT_TRUE(decision.fresh);
  EXPECT_EQ(decision.step, 0);
  EXPECT_EQ(decision.epoch, 1u);
}

TEST(rpc_server_plan_recovery, servers_go_back_to_the_newest_step_that_all_of_them_have) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> names;
    std::vector<Standing> standings;
    for (unsigned s = 0; s < 1 + seed % 4; ++s) {
      names.push_back("server" + std::to_string(s));
      Standing standing{random() % 5, false, {0}, {}};
      for (int64_t step = 1; step < 6; ++step)
        if (random() % 3) standing.steps.push_back(step);
      std::shuffle(standing.steps.begin(), standing.steps.end(), random);
      standings.push_back(standing);
    }
    const Decision decision = decide(names, standings, 0);
    EXPECT_FALSE(decision.fresh);
    for (int64_t step = 0; step < 6; ++step) {
      const bool all = std::all_of(standings.begin(), standings.end(), [&](const Standing& s) {
        return std::count(s.steps.begin(), s.steps.end(), step) > 0;
      });
      EXPECT_TRUE(step > decision.step ? !all : step < decision.step || all);
    }
    for (const Standing& s : standings) EXPECT_GT(decision.epoch, s.epoch);
  }
}

TEST(rpc_server_plan_recovery, who_is_lost_to_one_server_is_left_out_unless_it_asks) {
  const std::vector<Standing> standings = {{1, false, {4}, {2}}, {1, false, {4}, {1, 2}}};
  EXPECT_EQ(decide({"a", "b"}, standings, 0).lost, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(decide({"a", "b"}, standings, 1).lost, (std::vector<int32_t>{2}));
}

TEST(rpc_server_plan_recovery, no_common_step_is_an_error_that_lists_what_there_is) {
  try {
    decide({"a", "b"}, {{3, false, {4, 6}, {}}, {0, true, {}, {}}}, 0);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'a': 4, 6; 'b': none"), text.npos) << text;
    EXPECT_NE(text.find("folder of its own"), text.npos) << text;
  }
}

}  // namespace trireme::rpc::plan
