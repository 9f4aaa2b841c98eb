// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/averaging/averaging_plan.h"

#include <gtest/gtest.h>

namespace trireme::averaging_plan_test {
namespace {

TEST(optim_averaging_plan, of_the_levels_that_are_due_the_widest_is_taken) {
  const std::vector<AveragingLevel> levels{{2, 2}, {4, 4}, {8, 12}};
  for (int64_t s = 0; s < 100; ++s) {
    const int want = s == 0 ? -1 : s % 12 == 0 ? 2 : s % 4 == 0 ? 1 : s % 2 == 0 ? 0 : -1;
    EXPECT_EQ(due_level(levels, s), want) << s;
  }
}

TEST(optim_averaging_plan, levels_that_are_no_tree_of_all_ranks_are_named) {
  using Levels = std::vector<AveragingLevel>;
  EXPECT_EQ(fault_of({{8, 5}}, 8), "");
  EXPECT_EQ(fault_of({{2, 2}, {8, 8}}, 8), "");
  EXPECT_EQ(fault_of({{1, 3}}, 1), "");
  EXPECT_EQ(fault_of({}, 4), "there is no level");
  for (const Levels& bad :
       {Levels{{2, 2}}, Levels{{3, 2}, {8, 4}}, Levels{{4, 2}, {4, 4}}, Levels{{2, 4}, {4, 2}},
        Levels{{2, 4}, {4, 6}}, Levels{{1, 1}, {4, 2}}, Levels{{4, 0}}})
    EXPECT_NE(fault_of(bad, 4), "");
}

}  // namespace
}  // namespace trireme::averaging_plan_test
