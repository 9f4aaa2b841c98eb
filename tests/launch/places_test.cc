// SPDX-License-Identifier: Apache-2.0
// Who trains together while workers end and others are started in their place.
#include "trireme/launch/membership/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace trireme::launch::places_test {
namespace {

using Ids = std::vector<int64_t>;

TEST(launch_places, those_that_are_left_train_until_a_new_one_is_ready) {
  Places places(4);
  EXPECT_EQ(places.generation().members, (Ids{0, 1, 2, 3}));
  EXPECT_FALSE(places.next()) << "nothing has changed";
  EXPECT_EQ(places.lost(1), 4);
  auto next = places.next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 1);
  EXPECT_EQ(next->members, (Ids{0, 2, 3}));
  EXPECT_EQ(next->broken, 0);
  EXPECT_FALSE(places.next()) << "the new one is not ready";
  EXPECT_EQ(places.awaited(), std::vector<int>{1});
  places.ready(1);
  next = places.next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->number, 2);
  EXPECT_EQ(next->members, (Ids{0, 4, 2, 3})) << "it has the rank of the one that was there";
  EXPECT_EQ(next->broken, 0) << "generation 1 has lost nobody: it ends between two steps";
  EXPECT_TRUE(places.awaited().empty());
}

TEST(launch_places, a_new_one_that_ends_before_it_is_ready_breaks_no_generation) {
  Places places(2);
  places.lost(0);
  ASSERT_TRUE(places.next());
  EXPECT_EQ(places.lost(0), 3);
  EXPECT_FALSE(places.next());
  places.ready(0);
  EXPECT_EQ(places.next()->members, (Ids{3, 1})) << "all are there";
}

TEST(launch_places, where_not_all_are_there_those_that_have_trained_come_first) {
  Places places(4);
  for (const int place : {0, 1, 3}) places.lost(place);
  EXPECT_EQ(places.next()->members, Ids{2});
  places.ready(1);
  EXPECT_EQ(places.next()->members, (Ids{2, 5}));
  places.ready(0);
  EXPECT_EQ(places.next()->members, (Ids{2, 5, 4})) << "who came first is before who came later";
  places.ready(3);
  EXPECT_EQ(places.next()->members, (Ids{4, 5, 2, 6})) << "all are there";
  places.lost(1);
  EXPECT_EQ(places.next()->members, (Ids{4, 2, 6}));
}

TEST(launch_places, several_losses_are_one_generation) {
  Places places(3);
  places.lost(0);
  places.lost(2);
  const auto next = places.next();
  EXPECT_EQ(next->number, 1);
  EXPECT_EQ(next->members, Ids{1});
  places.lost(1);
  EXPECT_FALSE(places.next()) << "nobody is left";
}

TEST(launch_places, in_any_history_numbers_grow_and_workers_are_unique) {
  std::mt19937 random(7);
  for (int history = 0; history < 300; ++history) {
    const int count = 1 + static_cast<int>(random() % 6);
    Places places(count);
    int64_t number = 0, broken = -1;
    for (int event = 0; event < 60; ++event) {
      const int place = static_cast<int>(random() % static_cast<unsigned>(count));
      const auto before = places.generation().members;
      const int64_t id = places.member_at(place);
      const bool was_in = std::find(before.begin(), before.end(), id) != before.end();
      const bool loses = random() % 2 == 0;
      loses ? static_cast<void>(places.lost(place)) : places.ready(place);
      const auto next = places.next();
      if (!next) continue;
      ASSERT_EQ(next->number, ++number);
      ASSERT_GE(next->broken, broken);
      if (loses && was_in) {
        ASSERT_EQ(next->broken, number - 1);
      }
      broken = next->broken;
      ASSERT_FALSE(next->members.empty());
      ASSERT_EQ(std::set<int64_t>(next->members.begin(), next->members.end()).size(),
                next->members.size());
      if (loses) {
        ASSERT_EQ(std::find(next->members.begin(), next->members.end(), id), next->members.end());
      }
    }
  }
}

}  // namespace
}  // namespace trireme::launch::places_test
