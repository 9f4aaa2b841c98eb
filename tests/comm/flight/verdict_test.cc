// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/comm/flight/histories.h"
#include "tests/support/refusals.h"

namespace verdict_test {

using namespace trireme;
using namespace trireme::flight;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

Entry call(uint64_t seq, Collective op, uint64_t count, const char* site, double posted) {
  Entry e;
  e.seq = seq;
  e.op = op;
  e.dtype = DType::f32;
  e.count = count;
  e.site = site;
  e.posted = posted;
  e.state = CallState::posted;
  return e;
}

Entry pair(uint64_t seq, Collective op, int peer, int tag, uint64_t count, double posted,
           CallState state) {
  Entry e = call(seq, op, count, "p2p.cc:7", posted);
  e.root = peer;
  e.tag = tag;
  e.state = state;
  return e;
}

History rank_of(int rank, int size, const std::string& group = "world", int world_rank = -1) {
  History h;
  h.group = group;
  h.rank = h.writer = rank;
  h.world_rank = world_rank < 0 ? rank : world_rank;
  h.size = size;
  h.written = 1100;
  h.why = "timed out";
  return h;
}

}  // namespace

TEST(comm_flight_verdict, says_who_called_what_where) {
  std::vector<History> all{rank_of(0, 2), rank_of(1, 2)};
  all[0].calls = {call(57, Collective::all_reduce, 10, "train.cc:41", 1000)};
  all[1].calls = {call(57, Collective::broadcast, 10, "train.cc:40", 1000)};
  all[0].calls[0].seq = all[1].calls[0].seq = 1;
  const Verdict v = judge(all);
  EXPECT_EQ(v.sentence,
            "rank 1 called broadcast(float32[10], root 0) at train.cc:40 as its call 1 of group "
            "world where rank 0 called all_reduce(float32[10], sum) at train.cc:41");
  EXPECT_EQ(v.kind, Verdict::different_call);
  EXPECT_EQ(v.rank, 1);
}

TEST(comm_flight_verdict, says_what_a_rank_never_called_and_what_it_did_last) {
  std::vector<History> all{rank_of(0, 3), rank_of(1, 3), rank_of(2, 3)};
  for (auto& h : all) h.calls = {call(1, Collective::barrier, 0, "a.cc:1", 1000)};
  for (int r : {0, 1})
    all[size_t(r)].calls.push_back(call(2, Collective::all_reduce, 8, "a.cc:2", 1090));
  all[2].calls[0].posted = 1087.7;
  const Verdict v = judge(all);
  EXPECT_EQ(v.sentence,
            "rank 2 never made call 2 of group world, in which ranks 0 and 1 called "
            "all_reduce(float32[8], sum) at a.cc:2; its last was call 1, barrier at a.cc:1, 12.3 s "
            "before the dump");
}

TEST(comm_flight_verdict, says_who_was_slowest_where_all_agree) {
  std::vector<History> all{rank_of(0, 2), rank_of(1, 2)};
  for (auto& h : all) h.calls = {call(1, Collective::barrier, 0, "a.cc:1", 1000)};
  all[1].calls[0].posted = 1002.5;
  const Verdict v = judge(all);
  EXPECT_EQ(v.kind, Verdict::agree);
  EXPECT_EQ(v.sentence,
            "all ranks agree: no divergence in the last 1 calls; rank 1 was slowest: it came to "
            "call 1 of group world, barrier at a.cc:1, 2.5 s after the first");
}

// One divergence anywhere in random histories: a call that differs in one thing, a call left out,
// one too many, a rank that stops. It is always the one that is named.
TEST(comm_flight_verdict, one_injected_divergence_is_always_named) {
  int kinds[5] = {};
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Dice dice(seed);
    const int ranks = 2 + static_cast<int>(dice.up_to(6));
    const uint64_t calls = 2 + dice.up_to(60), first = dice.up_to(1) ? 1 : 5000;
    auto all = agreeing(dice, ranks, calls, first);
    for (auto& h : all) h.why = "timed out";
    const auto victim = static_cast<size_t>(dice.up_to(static_cast<uint64_t>(ranks - 1)));
    const uint64_t at = dice.up_to(calls - 2);  // index, not the last
    auto& mine = all[victim].calls;
    const int kind = static_cast<int>(dice.up_to(4));
    ++kinds[kind];
    Verdict::Kind expected = Verdict::different_call;
    switch (kind) {
      case 0:
        mine[at].count += 1 + dice.up_to(5);
        if (mine[at].op == Collective::barrier) mine[at].op = Collective::all_reduce;
        break;
      case 1:
        mine[at].op =
            mine[at].op == Collective::all_gather ? Collective::all_to_all : Collective::all_gather;
        break;
      case 2:
        mine[at].dtype = mine[at].dtype == DType::f32 ? DType::i32 : DType::f32;
        break;
      case 3:  // left out: the next one, unlike it, stands in its place
        for (auto& h : all) {
          h.calls[at].op = Collective::all_reduce;
          h.calls[at + 1].op = Collective::all_gather;
        }
        for (size_t i = at; i + 1 < mine.size(); ++i) {
          const uint64_t seq = mine[i].seq;
          mine[i] = mine[i + 1];
          mine[i].seq = seq;
        }
        mine.pop_back();
        break;
      default:  // stops
        mine.resize(at);
        expected = Verdict::missing_call;
    }
    const Verdict v = judge(all);
    ASSERT_EQ(v.kind, expected) << "seed " << seed << ": " << v.sentence;
    ASSERT_EQ(v.seq, first + at) << "seed " << seed << ": " << v.sentence;
    ASSERT_TRUE(has(v.sentence, std::to_string(first + at))) << v.sentence;
    if (ranks > 2 || expected == Verdict::missing_call) {
      ASSERT_EQ(v.rank, static_cast<int>(victim)) << "seed " << seed << ": " << v.sentence;
      ASSERT_EQ(v.sentence.rfind("rank " + std::to_string(victim) + " ", 0), 0u) << v.sentence;
    } else {
      ASSERT_TRUE(has(v.sentence, "rank 0 ") && has(v.sentence, "rank 1 ")) << v.sentence;
    }
  }
  for (int n : kinds) EXPECT_GT(n, 300);
}

TEST(comm_flight_verdict, histories_without_one_never_accuse_anybody) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Dice dice(seed);
    auto all = agreeing(dice, 1 + static_cast<int>(dice.up_to(7)), 1 + dice.up_to(50));
    if (dice.up_to(1))
      for (auto& h : all) h.why = "peer lost";
    const Verdict v = judge(all);
    ASSERT_EQ(v.kind, Verdict::agree) << v.sentence;
    ASSERT_TRUE(v.absent.empty());
  }
}

TEST(comm_flight_verdict, a_healthy_rank_that_is_a_moment_behind_is_not_accused) {
  Dice dice(3);
  auto all = agreeing(dice, 3, 20);
  all[1].calls.pop_back();
  all[1].written = all[0].calls.back().posted + 0.01;
  EXPECT_EQ(judge(all).kind, Verdict::agree) << judge(all).sentence;
  all[1].written = all[0].calls.back().posted + 5;  // five seconds are not a moment
  EXPECT_EQ(judge(all).kind, Verdict::missing_call);
  all[1].calls.pop_back();
  all[1].written = all[0].calls[17].posted;  // it wrote before the others came
  EXPECT_EQ(judge(all).kind, Verdict::agree) << judge(all).sentence;
}

TEST(comm_flight_verdict, of_several_divergences_the_first_is_named) {
  Dice dice(5);
  auto all = agreeing(dice, 4, 40);
  for (auto& h : all) h.why = "timed out";
  all[2].calls[10].count += 1;
  all[3].calls[30].count += 1;
  all[0].calls.resize(35);
  const Verdict v = judge(all);
  EXPECT_EQ(v.rank, 2);
  EXPECT_EQ(v.seq, 11u);
}

TEST(comm_flight_verdict, messages_whose_ends_differ_or_never_met_are_named) {
  std::vector<History> all{rank_of(0, 2), rank_of(1, 2)};
  all[0].pairs = {pair(1, Collective::send, 1, 7, 4, 1000, CallState::done),
                  pair(2, Collective::send, 1, 9, 5, 1001, CallState::done)};
  all[1].pairs = {pair(1, Collective::recv, 0, 9, 6, 1000, CallState::posted),
                  pair(2, Collective::recv, 0, 7, 4, 1000, CallState::done)};
  EXPECT_EQ(judge(all).sentence,
            "rank 1 called recv(float32[6], from rank 0) at p2p.cc:7 for message 1 with tag 9 of "
            "group world where rank 0 called send(float32[5], to rank 1) at p2p.cc:7");
  all[1].pairs[0].tag = 8;
  const Verdict v = judge(all);
  EXPECT_EQ(v.kind, Verdict::missing_message);
  EXPECT_TRUE(has(v.sentence,
                  "rank 0 never sent message 1 with tag 8 of group world, for which "
                  "rank 1 called recv(float32[6], from rank 0) at p2p.cc:7"))
      << v.sentence;
}

TEST(comm_flight_verdict, groups_called_in_another_order_are_named_as_a_circle) {
  std::vector<History> all;
  for (const char* group : {"world/1", "world/2"})
    for (int r : {0, 1}) all.push_back(rank_of(r, 2, group, r + 2));
  all[0].calls = {
      call(1, Collective::all_reduce, 4, "a.cc:1", 1000)};  // rank 2 of the world: 1, then 2
  all[3].calls = {call(1, Collective::all_reduce, 4, "a.cc:2", 1000)};  // rank 3: 2, then 1
  const Verdict v = judge(all);
  EXPECT_EQ(v.kind, Verdict::cycle);
  EXPECT_EQ(v.sentence,
            "ranks wait for each other in a cycle: rank 2 waits in all_reduce(float32[4], sum) at "
            "a.cc:1 of group world/1 for rank 3, rank 3 waits in all_reduce(float32[4], sum) at "
            "a.cc:2 of group world/2 for rank 2; every rank must make its calls in the same order");
}

TEST(comm_flight_verdict, ranks_without_a_history_are_named_and_the_rest_is_judged) {
  Dice dice(9);
  auto all = agreeing(dice, 4, 10);
  all[3].calls[4].count += 1;
  all.erase(all.begin() + 1);
  const Verdict v = judge(all);
  EXPECT_EQ(v.absent, std::vector<std::string>{"rank 1 of group world"});
  EXPECT_EQ(v.rank, 3);
}

TEST(comm_flight_verdict, the_table_shows_the_last_calls_of_each_rank) {
  Dice dice(9);
  auto all = agreeing(dice, 2, 10);
  all[1].pairs = {pair(1, Collective::send, 0, 7, 4, 1009.5, CallState::posted)};
  const std::string text = last_calls(all, 3);
  EXPECT_TRUE(has(text, "group world, rank 0") && has(text, "group world, rank 1")) << text;
  EXPECT_TRUE(has(text, "send(float32[4], to rank 0) at p2p.cc:7 with tag 7")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 + 3 + 3) << text;
}

}  // namespace verdict_test
