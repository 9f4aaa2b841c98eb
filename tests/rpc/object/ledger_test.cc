// SPDX-License-Identifier: Apache-2.0
// Who refers to what, as numbers: workers that make, pass on, drop and die in any order, and
// messages that overtake each other. An object is freed when nobody can reach it, never earlier.
#include "trireme/rpc/object/ledger.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/rpc/object/ledger_world.h"

namespace trireme::rpc_ledger_test {

TEST(rpc_object_ledger, an_object_is_never_freed_while_somebody_refers_to_it) {
  int made = 0, freed = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    World world(4, seed);
    world.run(1500, false);
    ASSERT_TRUE(world.failures().empty()) << "seed " << seed << ": " << world.failures()[0];
    world.settle_all();
    ASSERT_TRUE(world.failures().empty()) << "seed " << seed << ": " << world.failures()[0];
    ASSERT_EQ(world.left_over(), "") << "seed " << seed;
    made += world.made();
    freed += world.freed();
  }
  EXPECT_GT(made, 3000);
  EXPECT_GE(freed, made);  // those that were announced and never made, too
}

TEST(rpc_object_ledger, whatever_breaks_and_dies_all_is_freed_at_last) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    World world(4, seed);
    world.run(1500, true);
    world.settle_all();
    ASSERT_EQ(world.left_over(), "") << "seed " << seed;
  }
}

TEST(rpc_object_ledger, a_release_that_overtakes_the_making_undoes_it) {
  Ledger owner(1);
  owner.opened(7, 2);
  const ObjectId object{1, 2, 1};
  owner.released(object, 7, 1);
  EXPECT_FALSE(owner.make_for(object, 7, 1));
  EXPECT_EQ(owner.owned(), 0u);
}

TEST(rpc_object_ledger, nobody_settles_what_was_passed_to_another_or_makes_in_anothers_name) {
  Ledger ledger(1);
  ledger.opened(7, 2);
  ledger.opened(8, 3);
  const ObjectId object = ledger.own();
  const auto token = ledger.pass(object, 0, 7, {});
  ledger.drop(object, 0);
  ledger.settled(8, token);
  EXPECT_TRUE(ledger.owns(object));
  ledger.settled(7, token);
  EXPECT_FALSE(ledger.owns(object));
  EXPECT_FALSE(ledger.make_for({1, 2, 1}, 8, 1));
  EXPECT_FALSE(ledger.make_for({4, 2, 1}, 7, 1));
  EXPECT_FALSE(ledger.claimed({1, 1, 1}, 7, 1));
}

TEST(rpc_object_ledger, what_was_withdrawn_is_not_read_later) {
  Ledger ledger(1);
  ledger.opened(7, 2);
  EXPECT_EQ(ledger.withdraw(7, {5}, true), std::vector<uint64_t>{5});
  EXPECT_FALSE(ledger.read({3, 2, 1}, 7, 5).has_value());
  EXPECT_EQ(ledger.marks(), 0u);
  EXPECT_TRUE(ledger.read({3, 2, 1}, 7, 6).has_value());
  EXPECT_TRUE(ledger.withdraw(7, {6}, true).empty());  // it is being claimed
}

}  // namespace trireme::rpc_ledger_test
