// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/wait_graph.h"

#include <gtest/gtest.h>

#include "trireme/base/philox.h"

namespace wait_graph_test {

using namespace trireme;
using namespace trireme::detail;

namespace {

/// Ranks that call collectives of random groups, and say what they wait in only now and then, so
/// that most records are old ones.
struct World {
  struct Rank {
    std::vector<int> program;  // groups, in its order
    size_t next = 0;
    WaitRecord now;
  };
  std::vector<std::vector<int>> groups;
  std::vector<Rank> ranks;
  WaitRecords said;

  bool arrived(int q, int g, uint64_t number) const {
    const auto& calls = ranks[static_cast<size_t>(q)].now.groups;
    const auto at = calls.find(std::to_string(g));
    return at != calls.end() && at->second.calls >= number;
  }
  bool waits(int r) const {
    const Waiting& w = ranks[static_cast<size_t>(r)].now.waiting;
    if (w.kind == WaitKind::none) return false;
    for (int q : w.ranks)
      if (!arrived(q, std::stoi(w.group), w.number)) return true;
    return false;
  }
  /// Rank r makes its next call, if it can.
  void step(int r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    if (waits(r)) return;
    rank.now.waiting = {};
    if (rank.next == rank.program.size()) return;
    const int g = rank.program[rank.next++];
    const uint64_t number = ++rank.now.groups[std::to_string(g)].calls;
    rank.now.waiting = {WaitKind::collective,
                        std::to_string(g),
                        groups[static_cast<size_t>(g)],
                        number,
                        0,
                        "a call"};
  }
};

}  // namespace

TEST(comm_wait_graph, old_records_never_make_a_circle_of_ranks_that_get_on) {
  uint64_t seed = 1;
  const auto random = [&](uint64_t below) { return mix64(++seed) % below; };
  int circles = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const int n = 2 + static_cast<int>(random(4));
    World world;
    for (int g = 0; g < 4; ++g) {
      std::vector<int> members;
      for (int r = 0; r < n; ++r)
        if (random(3)) members.push_back(r);
      world.groups.push_back(members);
    }
    world.ranks.resize(static_cast<size_t>(n));
    world.said.resize(static_cast<size_t>(n));
    // One order of calls for all; in every other trial two calls of one rank change places.
    for (int i = 0; i < 12; ++i) {
      const int g = static_cast<int>(random(4));
      for (int r : world.groups[static_cast<size_t>(g)])
        world.ranks[static_cast<size_t>(r)].program.push_back(g);
    }
    auto& victim = world.ranks[random(static_cast<uint64_t>(n))].program;
    if (trial % 2 && victim.size() > 1)
      std::swap(victim[random(victim.size())], victim[random(victim.size())]);

    bool found = false;
    const auto look = [&](int r) {
      WaitRecords records = world.said;
      records[static_cast<size_t>(r)] = world.ranks[static_cast<size_t>(r)].now;
      return world.waits(r) && find_circle(records, r).has_value();
    };
    std::vector<bool> in_circle(static_cast<size_t>(n));
    for (int i = 0; i < 400; ++i) {
      const int r = static_cast<int>(random(static_cast<uint64_t>(n)));
      const auto at = static_cast<size_t>(r);
      world.step(r);
      ASSERT_FALSE(in_circle[at] && !world.waits(r)) << "trial " << trial;  // it was one for ever
      if (random(3) == 0) world.said[at] = world.ranks[at].now;
      in_circle[at] = in_circle[at] || look(r);
      found = found || in_circle[at];
    }
    // At the end all say where they are: a world that stands still has a circle.
    bool still = true;
    for (int r = 0; r < n; ++r) {
      const auto at = static_cast<size_t>(r);
      world.said[at] = world.ranks[at].now;
      still = still && (world.waits(r) || world.ranks[at].next == world.ranks[at].program.size());
    }
    if (trial % 2 == 0) {
      ASSERT_FALSE(found) << "trial " << trial;
    }
    bool any_waits = false, circle = false;
    for (int r = 0; r < n; ++r) {
      any_waits = any_waits || world.waits(r);
      circle = circle || find_circle(world.said, r).has_value();
    }
    if (found) {
      ASSERT_TRUE(still && circle) << "trial " << trial;
    }
    // Without a circle somebody waits for a rank that has ended.
    if (still && any_waits && !circle) {
      bool ended = false;
      for (int r = 0; r < n; ++r)
        ended =
            ended || (!world.waits(r) && world.ranks[static_cast<size_t>(r)].next ==
                                             world.ranks[static_cast<size_t>(r)].program.size());
      ASSERT_TRUE(ended) << "trial " << trial;
    }
    circles += circle;
  }
  EXPECT_GT(circles, 100);
}

namespace {
WaitRecord waits_in(WaitKind kind, int peer, uint64_t number, int tag = 0) {
  WaitRecord r;
  r.waiting = {kind, "g", {peer}, number, tag, "message"};
  return r;
}
}  // namespace

TEST(comm_wait_graph, messages_are_counted_by_peer_and_tag) {
  WaitRecords both{waits_in(WaitKind::recv, 1, 2, 5), waits_in(WaitKind::recv, 0, 1, 5)};
  EXPECT_TRUE(find_circle(both, 0));
  both[1]->groups["g"].messages[{0, 5}] = {1, 0};  // it has sent one; rank 0 wants the second
  EXPECT_TRUE(find_circle(both, 0));
  both[1]->groups["g"].messages[{0, 5}] = {2, 0};  // the second is on its way
  EXPECT_FALSE(find_circle(both, 0));
  both[1]->groups["g"].messages[{0, 5}] = {1, 0};
  both[1]->groups["g"].any_source_tags = {5};
  EXPECT_FALSE(find_circle(both, 0));
  both[1]->groups["g"].any_source_tags = {};
  both[1]->groups["g"].all_messages = false;
  EXPECT_FALSE(find_circle(both, 0));
  WaitRecords sends{waits_in(WaitKind::send, 1, 1), waits_in(WaitKind::send, 0, 1)};
  EXPECT_TRUE(find_circle(sends, 1));
  sends[0]->groups["g"].messages[{1, 0}] = {1, 1};
  EXPECT_FALSE(find_circle(sends, 1));
}

TEST(comm_wait_graph, who_left_and_who_is_absent) {
  WaitRecords all(3);
  all[0] = WaitRecord{};
  all[0]->waiting = {WaitKind::collective, "g", {0, 1, 2}, 3, 0, "call 3"};
  EXPECT_EQ(find_absent(all, 0), (std::vector<int>{1, 2}));
  EXPECT_FALSE(find_left(all, 0));
  all[1] = WaitRecord{};
  all[1]->groups["g"].calls = 3;
  all[1]->groups["g"].left = true;  // after this call
  EXPECT_EQ(find_absent(all, 0), std::vector<int>{2});
  EXPECT_FALSE(find_left(all, 0));
  all[2] = WaitRecord{};
  all[2]->groups["g"].calls = 2;
  all[2]->groups["g"].left = true;
  ASSERT_TRUE(find_left(all, 0));
  EXPECT_NE(find_left(all, 0)->find("rank 2 left group g after call 2; rank 0 waits in call 3"),
            std::string::npos);
}

TEST(comm_wait_graph, a_circle_reads_the_same_whichever_rank_asks) {
  WaitRecords ring;
  for (int r = 0; r < 9; ++r) ring.push_back(waits_in(WaitKind::recv, (r + 1) % 9, 1));
  const auto text = find_circle(ring, 0);
  ASSERT_TRUE(text);
  for (int r = 1; r < 9; ++r) EXPECT_EQ(find_circle(ring, r), text);
  EXPECT_NE(text->find("rank 0 is in message, and needs rank 1; rank 1"), std::string::npos);
  EXPECT_NE(text->find("; and 3 more"), std::string::npos);
}

TEST(comm_wait_graph, records_survive_the_way_between_ranks) {
  WaitRecord r = waits_in(WaitKind::send, 3, 7, -2);
  r.groups["world/1"].messages[{2, 1}] = {4, 5};
  const auto back = decode<WaitRecord>(encode(r));
  EXPECT_EQ(back.waiting.ranks, std::vector<int>{3});
  EXPECT_EQ(back.waiting.tag, -2);
  EXPECT_EQ(back.groups.at("world/1").messages.at({2, 1}).second, 5u);
}

}  // namespace wait_graph_test
