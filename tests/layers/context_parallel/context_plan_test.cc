// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/context_parallel/context_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "trireme/layers/context_parallel/ring_plan.h"

namespace context_plan_test {

using namespace trireme;

namespace {

// Calls f for every small row, number of ranks and balance that can be.
template <class F>
void for_small_rows(F f) {
  for (const auto balance : {ContextBalance::head_tail, ContextBalance::none})
    for (int64_t ranks = 1; ranks <= 7; ++ranks)
      for (int64_t time = ranks; time <= 40; ++time) {
        SCOPED_TRACE(fmt::format("{} places, {} ranks, {}", time, ranks,
                                 balance == ContextBalance::none ? "none" : "head_tail"));
        f(time, ranks, balance);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

}  // namespace

TEST(layers_context_parallel_context_plan, every_place_is_on_one_rank_and_every_rank_has_one) {
  for_small_rows([](int64_t time, int64_t ranks, ContextBalance balance) {
    std::set<int64_t> places;
    int64_t most = 0, least = time;
    for (int64_t r = 0; r < ranks; ++r) {
      const auto own = context_places(time, ranks, r, balance);
      ASSERT_LE(own.size(), 2u);
      int64_t before = -1;
      for (const Part& part : own) {
        ASSERT_GT(part.begin, before);  // ascending, and ranges that touch are one
        ASSERT_GT(part.length, 0);
        before = part.end();
        for (int64_t p = part.begin; p < part.end(); ++p) ASSERT_TRUE(places.insert(p).second);
      }
      most = std::max(most, count_of(own));
      least = std::min(least, count_of(own));
    }
    ASSERT_EQ(static_cast<int64_t>(places.size()), time);
    ASSERT_GE(least, 1);
    ASSERT_LE(most - least, 1);
    ASSERT_EQ(most_context_places(time, ranks, balance), most);
    ASSERT_EQ(fault_of_context(time, ranks), "");
  });
}

TEST(layers_context_parallel_context_plan, head_and_tail_of_ranks_that_divide_the_row_are_as_dear) {
  for (int64_t ranks = 1; ranks <= 8; ++ranks)
    for (int64_t chunk = 1; chunk <= 5; ++chunk) {
      const int64_t time = 2 * ranks * chunk;
      std::set<int64_t> work;
      for (int64_t r = 0; r < ranks; ++r) {
        int64_t pairs = 0;
        for (const Part& part : context_places(time, ranks, r, ContextBalance::head_tail))
          pairs += visible_pairs(part, {0, time});
        work.insert(pairs);
      }
      ASSERT_EQ(work.size(), 1u) << ranks << " " << chunk;
    }
  // Uneven chunks: within one place's keys a chunk.
  for_small_rows([](int64_t time, int64_t ranks, ContextBalance balance) {
    if (balance == ContextBalance::none) return;
    int64_t most = 0, least = time * time;
    for (int64_t r = 0; r < ranks; ++r) {
      int64_t pairs = 0;
      for (const Part& part : context_places(time, ranks, r, balance))
        pairs += visible_pairs(part, {0, time});
      most = std::max(most, pairs);
      least = std::min(least, pairs);
    }
    ASSERT_LE(most - least, 2 * time);
  });
}

TEST(layers_context_parallel_context_plan, every_visible_pair_of_places_is_computed_once) {
  for_small_rows([](int64_t time, int64_t ranks, ContextBalance balance) {
    const RingPlan plan(time, ranks, balance);
    std::map<std::pair<int64_t, int64_t>, int> computed;
    for (int64_t r = 0; r < ranks; ++r)
      for (int64_t hop = 0; hop < ranks; ++hop)
        for (const VisibleBlock& b : plan.blocks(r, plan.source(r, hop))) {
          const int64_t pairs = visible_pairs(b.queries, b.keys);
          ASSERT_GT(pairs, 0);  // nothing that is all invisible
          int64_t counted = 0;
          for (int64_t q = b.queries.begin; q < b.queries.end(); ++q)
            for (int64_t k = b.keys.begin; k < std::min(b.keys.end(), q + 1); ++k, ++counted)
              ASSERT_EQ(++computed[std::pair(q, k)], 1);
          ASSERT_EQ(counted, pairs);
        }
    ASSERT_EQ(static_cast<int64_t>(computed.size()), time * (time + 1) / 2);
  });
}

TEST(layers_context_parallel_context_plan,
     what_a_rank_computes_with_is_there_and_nothing_else_travels) {
  for_small_rows([](int64_t time, int64_t ranks, ContextBalance balance) {
    const RingPlan plan(time, ranks, balance);
    for (int64_t source = 0; source < ranks; ++source) {
      std::vector<Part> here = plan.places(source);
      for (int64_t hop = 1; hop < ranks; ++hop) {
        const int64_t rank = plan.holder(source, hop);
        ASSERT_EQ(rank, plan.next(plan.holder(source, hop - 1)));
        ASSERT_EQ(plan.source(rank, hop), source);
        const auto sent = plan.keys(source, hop);
        for (const Part& range : sent) {  // what is sent is there, and used here or behind
          ASSERT_NE(std::find(here.begin(), here.end(), range), here.end());
          bool used = false;
          for (int64_t h = hop; h < ranks; ++h)
            for (const VisibleBlock& b : plan.blocks(plan.holder(source, h), source))
              used = used || b.keys == range;
          ASSERT_TRUE(used);
        }
        for (const VisibleBlock& b : plan.blocks(rank, source))
          ASSERT_NE(std::find(sent.begin(), sent.end(), b.keys), sent.end());
        here = sent;
      }
      // Gradients: what any rank computed comes home.
      ASSERT_EQ(plan.holder(source, ranks), source);
      std::vector<Part> known;
      for (int64_t hop = 1; hop < ranks; ++hop) {
        for (const VisibleBlock& b : plan.blocks(plan.holder(source, hop), source))
          if (std::find(known.begin(), known.end(), b.keys) == known.end()) known.push_back(b.keys);
        auto due = plan.gradients(source, hop + 1);
        ASSERT_EQ(due.size(), known.size());
        for (const Part& range : known)
          ASSERT_NE(std::find(due.begin(), due.end(), range), due.end());
      }
    }
  });
}

TEST(layers_context_parallel_context_plan, tails_stop_at_the_lowest_rank_and_rounds_are_balanced) {
  const RingPlan plan(32, 4, ContextBalance::head_tail);
  // Rank 1 has chunks 1 and 6; ranks 0 (after one hop), 3 and 2 get its block.
  EXPECT_EQ(plan.keys(1, 1), (std::vector<Part>{{4, 4}, {24, 4}}));
  EXPECT_EQ(plan.keys(1, 2), (std::vector<Part>{{4, 4}}));
  EXPECT_EQ(plan.keys(1, 3), (std::vector<Part>{{4, 4}}));
  for (int64_t hop = 1; hop < 4; ++hop)
    for (int64_t r = 0; r < 4; ++r) {
      int64_t pairs = 0;
      for (const VisibleBlock& b : plan.blocks(r, plan.source(r, hop)))
        pairs += visible_pairs(b.queries, b.keys);
      EXPECT_EQ(pairs, 2 * 4 * 4) << hop << " " << r;
    }
  const RingPlan in_order(32, 4, ContextBalance::none);
  EXPECT_EQ(in_order.keys(3, 1).size(), 0u);  // nobody sees what the last rank has
  EXPECT_EQ(in_order.keys(0, 3).size(), 1u);
}

TEST(layers_context_parallel_context_plan, what_cannot_be_divided_is_refused_with_its_numbers) {
  EXPECT_EQ(fault_of_context(3, 4),
            "3 positions do not divide among 4 context-parallel ranks: use at most 3 of them");
  EXPECT_EQ(fault_of_context_heads(12, 12, 4), "");
  EXPECT_EQ(fault_of_context_heads(12, 2, 4), "");
  EXPECT_NE(fault_of_context_heads(12, 12, 8).find("12 query heads do not divide among 8"),
            std::string::npos);
  EXPECT_NE(fault_of_context_heads(12, 3, 4).find("3 key/value heads and 4 context-parallel ranks"),
            std::string::npos);
  EXPECT_EQ(context_places_under_way(64, 4, ContextMethod::gather, ContextBalance::none), 64);
  EXPECT_EQ(context_places_under_way(64, 4, ContextMethod::ring, ContextBalance::none), 32);
  EXPECT_EQ(context_places_under_way(64, 1, ContextMethod::gather, ContextBalance::none), 0);
}

}  // namespace context_plan_test
