// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/check.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "tests/pipeline/schedule/schedules.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/timing.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme::pipeline::testing::check_test {
namespace {

TEST(pipeline_schedule_check, every_schedule_with_its_messages_and_units_is_right) {
  const int all = for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    for (const Receives r : {Receives::late, Receives::one_ahead, Receives::when_sent})
      for (const bool units : {false, true}) {
        CheckOptions options;
        options.rendezvous = r == Receives::when_sent;
        const auto found = check_schedule(place_messages(units ? place_units(s) : s, r), options);
        ASSERT_FALSE(found) << described(s, size) << ": " << found->sentence;
      }
  });
  EXPECT_GT(all, 1400);
}

struct Broken {
  Fault fault;
  const char* table;
  const char* sentence;
  CheckOptions options = {};
};

// Each is a small right table with one thing wrong.
TEST(pipeline_schedule_check, each_broken_table_is_refused_by_its_own_reason) {
  const Broken broken[] = {
      {Fault::empty_table, ",,\n,\n", "the table computes nothing: give each rank a row"},
      {Fault::stage_without_rank, "0F0,0B0\n2F0,2B0\n",
       "no rank computes stage 1, and there are 3 stages"},
      {Fault::stage_without_rank, "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1SEND_B0\n",
       "rank 1, action 1 (1RECV_F0) is of stage 1, which no rank computes"},
      {Fault::stage_on_two_ranks, "0F0,0B0\n1F0,0F0,1B0\n",
       "rank 1, action 2 (0F0) is of stage 0, which is on rank 0"},
      {Fault::repeated_action, "0F0,0F0,0B0\n",
       "rank 0, action 2 (0F0) is there already as action 1"},
      {Fault::repeated_action, "0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
       "rank 0, action 3 (0SEND_F0) is there already as action 2"},
      {Fault::two_backwards, "0F0,0B0,0W0\n",
       "rank 0, action 3 (0W0) computes a half of what action 2 computes whole: B is both I and W"},
      {Fault::two_backwards, "0F0,0I0,0B0,0W0\n",
       "rank 0, action 2 (0I0) computes a half of what action 3 computes whole: B is both I and W"},
      {Fault::dependent_pair, "(0F0;0B0)OVERLAP_F_B\n",
       "rank 0, action 1 (0F0) overlaps an action that waits for it: only different micro-batches "
       "may overlap"},
      {Fault::missing_forward, "0F0,0B0,0B1\n",
       "the forward of stage 0, micro-batch 1 is in no list: rank 0 has it to compute"},
      {Fault::missing_backward, "0F0,0F1,0B0\n",
       "the backward (B or I) of stage 0, micro-batch 1 is in no list: rank 0 has it to compute"},
      {Fault::missing_backward, "0F0,0W0\n",
       "the backward (B or I) of stage 0, micro-batch 0 is in no list: rank 0 has it to compute"},
      {Fault::missing_weight_gradient, "0F0,0I0\n",
       "the weight gradient (W) of stage 0, micro-batch 0 is in no list: rank 0 has it to compute"},
      {Fault::backward_before_forward, "0B0,0F0\n",
       "rank 0, action 1 (0B0) comes before its forward, action 2"},
      {Fault::weight_before_input, "0F0,0W0,0I0\n",
       "rank 0, action 2 (0W0) comes before its input gradient, action 3"},
      {Fault::handed_over_late, "1F0,0F0,1B0,0B0\n",
       "rank 0, action 1 (1F0) needs what the same rank computes later, as action 2"},
      {Fault::handed_over_late, "0F0,1F0,0B0,1B0\n",
       "rank 0, action 3 (0B0) needs what the same rank computes later, as action 4"},
      {Fault::needless_message, "0RECV_F0,0F0,0B0\n",
       "rank 0, action 1 (0RECV_F0) has no other rank to exchange with: there is no such stage"},
      {Fault::needless_message, "0F0,0SEND_F0,1F0,1B0,0B0\n",
       "rank 0, action 2 (0SEND_F0) has no other rank to exchange with: both stages are on this "
       "rank, which hands over by itself"},
      {Fault::missing_receive, "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
       "rank 1, action 1 (1F0) has no 1RECV_F0 before it"},
      {Fault::missing_send, "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n",
       "rank 0, action 3 (0RECV_B0) waits for 1SEND_B0, which rank 1 never sends"},
      {Fault::received_after_use, "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n",
       "rank 1, action 2 (1RECV_F0) comes after what uses it, action 1"},
      {Fault::sent_before_computed, "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0,1B0\n",
       "rank 1, action 3 (1SEND_B0) comes before what it sends is computed, by action 4"},
      {Fault::deadlock,
       "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
       "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
       "rank 0, action 3 (0RECV_B0) waits for rank 1, action 6 (1SEND_B0), rank 1, action 3 "
       "(1RECV_F1) waits for rank 0, action 6 (0SEND_F1): none of them goes on"},
      {Fault::rendezvous_deadlock,
       "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
       "rank 0, action 4 (0SEND_F1) waits for rank 1, action 5 (1RECV_F1), rank 1, action 4 "
       "(1SEND_B0) waits for rank 0, action 5 (0RECV_B0): none of them goes on",
       {.rendezvous = true}},
      {Fault::tag_clash,
       "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
       "rank 0, action 4 (0SEND_F1) has tag 0 while 0SEND_F0 may still be on its way to rank 1 "
       "with "
       "that tag: use more than 1 tags",
       {.tags = 1}},
      {Fault::too_many_activations,
       "0F0,0F1,0B0,0B1\n",
       "rank 0, action 2 (0F1) makes 2 live activations on its rank, and 1 are allowed",
       {.most_activations = 1}},
      {Fault::too_many_weight_gradients,
       "0F0,0I0,0F1,0I1,0W0,0W1\n",
       "rank 0, action 4 (0I1) makes 2 weight gradients wait on its rank, and 1 are allowed to",
       {.most_weight_gradients = 1}},
      {Fault::unit_not_whole, "0F0,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD\n",
       "rank 0, action 1 (0F0) computes while its stage's parameters are not gathered"},
      {Fault::unit_not_whole, "0UNSHARD,0F0,0RESHARD,0B0,0REDUCE_GRAD\n",
       "rank 0, action 4 (0B0) computes while its stage's parameters are not gathered"},
      {Fault::unit_gathered_twice, "0UNSHARD,0F0,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD\n",
       "rank 0, action 3 (0UNSHARD) gathers what is gathered already"},
      {Fault::unit_not_dropped, "0UNSHARD,0F0,0B0,0REDUCE_GRAD\n",
       "rank 0, action 1 (0UNSHARD) gathers a stage that is never dropped"},
      {Fault::unit_not_dropped, "0UNSHARD,0F0,0B0,0RESHARD,0RESHARD,0REDUCE_GRAD\n",
       "rank 0, action 5 (0RESHARD) drops what is not gathered"},
      {Fault::reduced_too_early, "0UNSHARD,0F0,0I0,0REDUCE_GRAD,0W0,0RESHARD\n",
       "rank 0, action 4 (0REDUCE_GRAD) adds gradients of which 0 of 1 micro-batches are there"},
      {Fault::reduced_not_once, "0UNSHARD,0F0,0B0,0RESHARD\n",
       "after rank 0, action 3 (0B0) the gradients of stage 0 are complete, and no REDUCE_GRAD "
       "follows"},
      {Fault::reduced_not_once, "0F0,0F1,0B0,0B1,0REDUCE_GRAD1\n",
       "rank 0, action 4 (0B1) comes before the gradients of rank 0, action 3 (0B0) are added, and "
       "those of two backwards do not meet"},
      {Fault::reduced_too_early, "0F0,0I0,0REDUCE_GRAD0,0W0\n",
       "rank 0, action 3 (0REDUCE_GRAD0) adds gradients that are not there, or were added before: "
       "it follows the B or W of its stage and micro-batch"},
      {Fault::reduced_too_early, "0F0,0F1,0B0,0REDUCE_GRAD1,0B1\n",
       "rank 0, action 4 (0REDUCE_GRAD1) adds gradients that are not there, or were added before: "
       "it follows the B or W of its stage and micro-batch"},
      {Fault::reduced_too_early, "0F0,0B0,0REDUCE_GRAD0,0REDUCE_GRAD0\n",
       "rank 0, action 4 (0REDUCE_GRAD0) adds gradients that are not there, or were added before: "
       "it follows the B or W of its stage and micro-batch"},
      {Fault::reduced_not_once, "0F0,0F1,0B0,0REDUCE_GRAD0,0B1,0REDUCE_GRAD\n",
       "rank 0, action 6 (0REDUCE_GRAD) adds the gradients of the step, and those of each "
       "micro-batch are added by themselves"},
      {Fault::reduced_not_once, "0F0,0F1,0B0,0REDUCE_GRAD0,0B1\n",
       "no REDUCE_GRAD adds the gradients of rank 0, action 5 (0B1)"},
      {Fault::reduced_not_once, "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD,0RESHARD\n",
       "rank 0, action 5 (0REDUCE_GRAD) adds the gradients of its stage a second time"},
  };
  std::set<std::string> reasons;
  for (const Broken& b : broken) {
    const auto found = check_schedule(read_table(b.table, "t.csv"), b.options);
    ASSERT_TRUE(found) << b.table;
    EXPECT_STREQ(name_of(found->fault), name_of(b.fault)) << b.table;
    EXPECT_EQ(found->sentence, b.sentence);
    if (found->rank >= 0) {
      EXPECT_NE(found->drawing.find('['), std::string::npos) << b.sentence;
    }
    reasons.insert(name_of(found->fault));
  }
  EXPECT_EQ(reasons.size(), 27u);
}

TEST(pipeline_schedule_check, a_deadlock_is_drawn_with_the_ranks_that_wait_for_each_other) {
  const auto found =
      check_schedule(read_table("0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                                "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
                                "t.csv"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->drawing,
            "  rank 0   0F0 0SEND_F0 [0RECV_B0] 0B0 0F1 0SEND_F1 0RECV_B1 ...\n"
            "  rank 1   1RECV_F0 1F0 [1RECV_F1] 1F1 1B0 1SEND_B0 1B1 ...\n");
}

// Nothing in a complete table is there in vain: without any one of its actions it is refused.
TEST(pipeline_schedule_check, a_table_without_one_of_its_actions_is_refused) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    const ScheduleSize size{3, 6, kind.stages_per_rank};
    const Schedule whole = place_messages(place_units(generate_schedule(kind.name, size)));
    ASSERT_FALSE(check_schedule(whole)) << kind.name;
    for (size_t rank = 0; rank < 3; ++rank)
      for (size_t i = 0; i < whole.actions[rank].size(); ++i) {
        Schedule less = whole;
        auto& list = less.actions[rank];
        if (list[i].overlaps_next || (i > 0 && list[i - 1].overlaps_next)) continue;
        const std::string gone = text_of(list[i]);
        list.erase(list.begin() + static_cast<ptrdiff_t>(i));
        EXPECT_TRUE(check_schedule(less)) << kind.name << " without " << gone;
      }
  }
}

// An order at random is refused exactly where the simulator, which knows nothing of the checker,
// cannot carry it out.
TEST(pipeline_schedule_check, random_orders_deadlock_where_they_cannot_be_carried_out) {
  std::mt19937 random(7);
  int right = 0, wrong = 0;
  for (int round = 0; round < 100000; ++round) {
    Schedule s = generate_schedule("1f1b", {2 + static_cast<int>(random() % 2), 2, 1});
    for (auto& list : s.actions)
      for (int swaps = 0; swaps < 2; ++swaps)
        std::swap(list[random() % list.size()], list[random() % list.size()]);
    bool backward_first = false;  // wrong by itself: not what this test is about
    for (const auto& list : s.actions)
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          backward_first |= list[i].kind == ActionKind::forward &&
                            list[j].kind == ActionKind::backward &&
                            list[i].micro_batch == list[j].micro_batch;
    if (backward_first) continue;
    bool carried_out = true;
    try {
      simulate(s, {});
    } catch (const UsageError&) {
      carried_out = false;
    }
    const auto found = check_schedule(place_messages(s));
    EXPECT_EQ(found ? name_of(found->fault) : "", std::string(carried_out ? "" : "deadlock"));
    (carried_out ? right : wrong)++;
  }
  EXPECT_GT(right, 1000);
  EXPECT_GT(wrong, 1000);
}

// With a tag for each message there is no clash; 1F1B needs as many tags as it sends ahead.
TEST(pipeline_schedule_check, tags_suffice_from_the_number_that_may_be_under_way) {
  const Schedule s = place_messages(generate_schedule("1f1b", {4, 8, 1}));
  int enough = 0;
  for (int tags = 1; tags <= 32; ++tags) {
    CheckOptions options;
    options.tags = tags;
    const auto found = check_schedule(s, options);
    if (found) {
      EXPECT_EQ(found->fault, Fault::tag_clash);
      EXPECT_EQ(enough, 0) << tags;
    } else if (enough == 0) {
      enough = tags;
    }
  }
  EXPECT_EQ(enough, 4);
}

TEST(pipeline_schedule_check, bounds_on_memory_hold_at_what_the_simulator_counts_and_not_below) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    int activations = 0, weights = 0;
    for (const RankTiming& r : simulate(s, {}).ranks) {
      activations = std::max(activations, r.activations);
      weights = std::max(weights, r.weight_gradients);
    }
    const Schedule complete = place_messages(s);
    const auto fault = [&](int inputs, int waiting) {
      CheckOptions options;
      options.most_activations = inputs, options.most_weight_gradients = waiting;
      const auto found = check_schedule(complete, options);
      return found ? name_of(found->fault) : "";
    };
    ASSERT_STREQ(fault(activations, weights), "") << described(s, size);
    if (activations > 1) {
      ASSERT_STREQ(fault(activations - 1, 0), "too_many_activations") << described(s, size);
    }
    if (weights > 1) {
      ASSERT_STREQ(fault(0, weights - 1), "too_many_weight_gradients") << described(s, size);
    }
  });
}

}  // namespace
}  // namespace trireme::pipeline::testing::check_test
