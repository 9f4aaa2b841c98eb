// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/spread_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace spread_step_test {

using namespace trireme;

namespace {

constexpr uint64_t kBytes = 100;

SpreadPart part(int64_t step, int64_t rank, int64_t world) {
  return {"/run", "save-" + std::to_string(step), step, rank, world, kBytes, false};
}
HostParts host(int64_t attempt, std::vector<SpreadPart> parts) {
  return {attempt, std::move(parts), "h:1", 1u << 20};
}

/// By brute force: the newest step of which the union of what the hosts hold is whole.
int64_t newest_whole(const std::vector<HostParts>& hosts) {
  int64_t newest = -1, attempt = -1;
  for (const HostParts& h : hosts) attempt = std::max(attempt, h.attempt);
  for (const HostParts& of : hosts)
    for (const SpreadPart& wanted : of.parts) {
      std::set<int64_t> ranks;
      for (const HostParts& h : hosts)
        for (const SpreadPart& p : h.parts)
          if (h.attempt == attempt && p.save == wanted.save) ranks.insert(p.rank);
      if (static_cast<int64_t>(ranks.size()) == wanted.world)
        newest = std::max(newest, wanted.step);
    }
  return newest;
}

}  // namespace

// Which parts are where is a number whose bits say of each host, step and rank whether it is there.
TEST(checkpoint_steps_spread_step, the_newest_whole_step_is_found_however_parts_are_spread) {
  for (int count = 1; count <= 3; ++count)
    for (int64_t world = 1; world <= 3; ++world) {
      const int bits = count * 2 * static_cast<int>(world);
      // All of them up to 12 bits; beyond, every 61st.
      for (int64_t where = 0; where<int64_t{1} << bits; where += bits> 12 ? 61 : 1)
        for (int old = 0; old <= count; ++old) {  // `old` < count: that host was away
          std::vector<HostParts> hosts;
          int bit = 0;
          for (int h = 0; h < count; ++h) {
            hosts.push_back(host(h == old ? 1 : 2, {}));
            for (int64_t step : {4, 8})
              for (int64_t rank = 0; rank < world; ++rank, ++bit)
                if (where >> bit & 1) hosts.back().parts.push_back(part(step, rank, world));
          }
          const SpreadChoice choice = choose_spread_step(hosts);
          ASSERT_EQ(choice.step ? choice.step->step : -1, newest_whole(hosts));
          if (!choice.step) continue;
          ASSERT_EQ(static_cast<int64_t>(choice.step->ranks.size()), world);
          for (int64_t rank = 0; rank < world; ++rank)
            for (size_t h = 0; h < hosts.size(); ++h) {
              const SpreadStep::Rank& part_of = choice.step->ranks[static_cast<size_t>(rank)];
              const std::vector<size_t> sources = sources_of(part_of, h);
              const size_t from = sources.at(0);
              const auto has = [&](size_t of) {
                return hosts[of].attempt == (count == 1 && old == 0 ? 1 : 2) &&
                       std::count(hosts[of].parts.begin(), hosts[of].parts.end(),
                                  part(choice.step->step, rank, world)) > 0;
              };
              ASSERT_TRUE(std::all_of(sources.begin(), sources.end(), has));
              ASSERT_EQ(std::set<size_t>(sources.begin(), sources.end()).size(), sources.size());
              if (has(h))
                ASSERT_EQ(sources, std::vector<size_t>{h}) << "it asks others for what it has";
              else
                ASSERT_EQ(sources.size(), part_of.hosts.size()) << "one that has it is not asked";
              ASSERT_TRUE(from == h || hosts[from].address == "h:1");
            }
        }
    }
}

TEST(checkpoint_steps_spread_step, nothing_in_memory_is_no_news_and_a_missing_part_is) {
  EXPECT_EQ(choose_spread_step({}).why_not, "");
  EXPECT_EQ(choose_spread_step({host(-1, {}), host(3, {})}).why_not, "");
  const SpreadChoice choice = choose_spread_step({host(3, {part(8, 0, 2)}), host(-1, {})});
  EXPECT_FALSE(choice.step);
  EXPECT_EQ(choice.why_not, "step 8: nobody has what rank 1 of 2 had");
}

TEST(checkpoint_steps_spread_step, what_a_host_kept_that_was_away_is_not_taken) {
  const HostParts away = host(2, {part(50, 0, 2), part(50, 1, 2)});
  EXPECT_FALSE(choose_spread_step({host(3, {}), away}).step);
  const auto choice = choose_spread_step({host(3, {part(40, 0, 1)}), away});
  ASSERT_TRUE(choice.step);
  EXPECT_EQ(choice.step->step, 40);
}

TEST(checkpoint_steps_spread_step, a_step_that_the_disk_is_past_is_left_alone) {
  SpreadPart behind = part(8, 0, 2);
  behind.behind = true;
  const SpreadChoice choice = choose_spread_step(
      {host(1, {behind, part(4, 0, 2)}), host(1, {part(8, 1, 2), part(4, 1, 2)})});
  EXPECT_FALSE(choice.step);
  EXPECT_EQ(choice.why_not, "");
}

TEST(checkpoint_steps_spread_step,
     hosts_that_contradict_each_other_are_said_and_an_older_step_goes) {
  for (int fault = 0; fault < 3; ++fault) {
    SpreadPart wrong = part(8, 1, 2);
    if (fault == 0) wrong.world = 3;
    if (fault == 1) wrong.rank = 2;
    if (fault == 2) wrong.rank = -1;
    const std::vector<HostParts> hosts = {host(1, {part(8, 0, 2), part(4, 0, 2)}),
                                          host(1, {wrong, part(4, 1, 2)})};
    const SpreadChoice choice = choose_spread_step(hosts);
    ASSERT_TRUE(choice.step) << fault;
    EXPECT_EQ(choice.step->step, 4);
  }
  SpreadPart longer = part(8, 1, 2);
  longer.bytes = 101;
  const SpreadChoice choice =
      choose_spread_step({host(1, {part(8, 0, 2), part(8, 1, 2)}), host(1, {longer})});
  EXPECT_EQ(choice.why_not, "step 8: the hosts say different things of it");
}

TEST(checkpoint_steps_spread_step, a_host_without_room_is_named) {
  std::vector<HostParts> hosts = {host(1, {part(8, 0, 2)}), host(1, {part(8, 1, 2)}), host(-1, {})};
  EXPECT_TRUE(choose_spread_step(hosts).step);
  hosts[2].room = 4 * kBytes - 1;  // it is to take two parts, into half of what is left
  EXPECT_EQ(choose_spread_step(hosts).why_not,
            "step 8: node 2 would have to take 200 bytes of other nodes' ranks, and has 399 bytes "
            "of memory left");
  hosts[2].room = 4 * kBytes;
  EXPECT_TRUE(choose_spread_step(hosts).step);
  hosts[0].address = "";
  EXPECT_EQ(choose_spread_step(hosts).why_not, "step 8: node 0 cannot give away what rank 0 had");
}

TEST(checkpoint_steps_spread_step, those_who_have_a_part_are_asked_by_about_as_many) {
  const SpreadStep::Rank rank{kBytes, {1, 4}};
  std::vector<int> asked(8);
  for (size_t h = 0; h < 8; ++h) ++asked[sources_of(rank, h)[0]];
  EXPECT_EQ(asked[1], 4);
  EXPECT_EQ(asked[4], 4);
}

}  // namespace spread_step_test
