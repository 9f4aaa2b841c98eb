// SPDX-License-Identifier: Apache-2.0
// The decisions about actors that failed, over random histories.
#include "trireme/rpc/actor/supervision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace trireme::rpc_actor_supervision_test {
namespace {

using namespace std::chrono_literals;
using rpc::OnDeath;
using rpc::Supervision;
using rpc::detail::Candidate;
using rpc::detail::FailureHistory;
using rpc::detail::place_for;

}  // namespace

TEST(rpc_actor_supervision, restarts_are_never_more_than_allowed_in_any_stretch_of_the_time) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 300; ++round) {
    const Supervision policy{.most_restarts = static_cast<int>(random() % 5),
                             .within = Duration(1 + random() % 1000)};
    FailureHistory history;
    std::vector<Duration> allowed;
    Duration now{};
    for (int i = 0; i < 200; ++i) {
      now += Duration(random() % 400);
      const auto within = std::count_if(allowed.begin(), allowed.end(),
                                        [&](Duration at) { return now - at < policy.within; });
      // Exactly when there is room: neither too many restarts nor one too few.
      const bool may = history.may_restart(now, policy, "it");
      EXPECT_EQ(may, within < policy.most_restarts) << round << " " << i;
      if (may) allowed.push_back(now);
    }
    EXPECT_EQ(history.restarts(), static_cast<int>(allowed.size()));
  }
}

TEST(rpc_actor_supervision, the_story_tells_the_last_failures_and_counts_the_others) {
  FailureHistory history;
  const Supervision policy{.most_restarts = 100};
  EXPECT_TRUE(history.may_restart(1500ms, policy, "std::runtime_error: the pole fell"));
  EXPECT_EQ(history.story(),
            "it was restarted once; after 1.5 s: std::runtime_error: the pole fell");
  for (int i = 0; i < 20; ++i) history.may_restart(2s, policy, "failure " + std::to_string(i));
  EXPECT_NE(history.story().find("it was restarted 21 times; 13 earlier failures; after 2 s: "
                                 "failure 12;"),
            std::string::npos)
      << history.story();
  EXPECT_NE(history.story().find("failure 19"), std::string::npos);
  FailureHistory none;
  EXPECT_FALSE(none.may_restart(0s, {.most_restarts = 0}, "x"));
  EXPECT_EQ(none.story(), "it was not restarted; after 0 s: x");
}

TEST(rpc_actor_supervision, an_actor_goes_to_the_worker_with_fewest_and_home_where_that_is_one) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Candidate> workers(1 + random() % 6);
    for (auto& worker : workers) worker = {random() % 3 > 0, static_cast<int>(random() % 4)};
    const size_t before = random() % workers.size();
    const auto place = place_for(workers, before, OnDeath::elsewhere);
    int fewest = 1 << 20;
    for (const auto& worker : workers)
      if (worker.there) fewest = std::min(fewest, worker.actors);
    ASSERT_EQ(place.has_value(), fewest < 1 << 20);
    if (!place) continue;
    EXPECT_TRUE(workers[*place].there);
    EXPECT_EQ(workers[*place].actors, fewest);
    if (workers[before].there && workers[before].actors == fewest) {
      EXPECT_EQ(*place, before);
    }
    const auto home = place_for(workers, before, OnDeath::same_worker);
    EXPECT_EQ(home.has_value(), workers[before].there);
    EXPECT_EQ(home.value_or(before), before);
    EXPECT_FALSE(place_for(workers, before, OnDeath::escalate));
  }
}

TEST(rpc_actor_supervision, actors_of_a_lost_worker_spread_evenly_over_the_others) {
  for (int lost = 0; lost < 4; ++lost) {
    std::vector<Candidate> workers(4, Candidate{true, 6});
    workers[static_cast<size_t>(lost)] = {false, 0};
    for (int i = 0; i < 6; ++i) {
      const auto place = place_for(workers, static_cast<size_t>(lost), OnDeath::elsewhere);
      ASSERT_TRUE(place);
      ++workers[*place].actors;
    }
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(workers[static_cast<size_t>(i)].actors, i == lost ? 0 : 8);
  }
}

}  // namespace trireme::rpc_actor_supervision_test
