// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/algorithm.h"

#include <gtest/gtest.h>

namespace algorithm_test {

using namespace trireme;

TEST(comm_plan_algorithm, names_go_both_ways) {
  for (Algorithm a : kAlgorithms) EXPECT_EQ(algorithm_named(name_of(a)), a);
  EXPECT_FALSE(algorithm_named("rings"));
}

TEST(comm_plan_algorithm, ring_and_double_tree_have_orders_of_their_own) {
  for (const auto& hosts : std::vector<std::vector<int>>{{}, {0, 0, 1, 1}, {0, 1, 2, 3}})
    for (Algorithm a : kAlgorithms)
      EXPECT_EQ(keeps_order(a, hosts), a != Algorithm::ring && a != Algorithm::double_tree);
  EXPECT_FALSE(keeps_order(Algorithm::two_level, {0, 1, 0, 1}));
}

}  // namespace algorithm_test
