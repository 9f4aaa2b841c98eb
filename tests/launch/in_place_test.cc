// SPDX-License-Identifier: Apache-2.0
// Launchers of several hosts, each with workers of its own, tell all of them who goes on.
#include "trireme/launch/in_place.h"

#include <gtest/gtest.h>

#include "trireme/rendezvous/generations.h"
#include "trireme/store/memory_store.h"

namespace trireme::launch::in_place_test {
namespace {

class launch_in_place : public ::testing::Test {
 protected:
  /// Hosts with two workers and one.
  InPlace launcher(int node) { return InPlace(store_->clone(Deadline::never()), 4, {2, 1}, node); }
  trireme::Generation newest() {
    return decode<trireme::Generation>(*store_->try_get(generations::newest(4)));
  }
  void able(int64_t id) { store_->set(generations::able(4, id), "1"); }
  void ready(int64_t id) { store_->set(generations::ready(4, id), "1"); }

  MemoryStore memory_;
  Store* const store_ = &memory_;
};

using Ids = std::vector<int64_t>;

TEST_F(launch_in_place, a_worker_of_one_host_is_replaced_when_those_of_all_hosts_are_able) {
  InPlace zero = launcher(0), one = launcher(1);
  EXPECT_EQ(zero.member_at(1), "1");
  EXPECT_EQ(one.member_at(0), "2");
  EXPECT_FALSE(one.can_go_on({})) << "nobody has trained yet";
  able(0);
  EXPECT_FALSE(one.can_go_on({})) << "rank 1 may have nothing yet";
  able(1);
  able(2);
  EXPECT_TRUE(one.can_go_on({}));
  ASSERT_TRUE(one.lost(0, 1));
  EXPECT_EQ(newest().members, (Ids{0, 1}));
  EXPECT_EQ(one.member_at(0), "5");
  EXPECT_TRUE(one.awaits_any());
  EXPECT_FALSE(zero.awaits_any()) << "it is another launcher's";
  EXPECT_EQ(zero.losses(), 1) << "of all hosts";
  EXPECT_EQ(one.take_in(), 0);
  ready(5);
  EXPECT_EQ(one.take_in(), 3);
  EXPECT_EQ(newest().members, (Ids{0, 1, 5}));
  EXPECT_EQ(newest().number, 2);
}

TEST_F(launch_in_place, a_loss_there_while_one_is_awaited_here) {
  InPlace zero = launcher(0), one = launcher(1);
  for (const int64_t id : {0, 1, 2}) able(id);
  ASSERT_TRUE(zero.lost(0, 9));
  EXPECT_TRUE(one.can_go_on({})) << "one that was started later waits for the others";
  ASSERT_TRUE(one.lost(0, 9));
  EXPECT_EQ(newest().members, Ids{1});
  EXPECT_EQ(newest().broken, 1);
  EXPECT_TRUE(zero.can_go_on({0, 1}));
  EXPECT_FALSE(zero.can_go_on({0})) << "nobody is left who has the state";
}

TEST_F(launch_in_place, what_is_left_of_the_restarts_is_spent_once) {
  InPlace zero = launcher(0), one = launcher(1);
  EXPECT_EQ(zero.losses(), 0);
  EXPECT_EQ(one.losses(), 0);
  EXPECT_TRUE(zero.lost(1, 1));
  EXPECT_FALSE(one.lost(0, 1)) << "the other launcher has had the last one";
  EXPECT_EQ(one.losses(), 1);
  EXPECT_EQ(newest().members, (Ids{0, 2}));
}

}  // namespace
}  // namespace trireme::launch::in_place_test
