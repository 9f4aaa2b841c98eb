// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/messages.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme::pipeline::testing::messages_test {
namespace {

using trireme::testing::refusal;

std::string completed(const std::string& table, Receives receives = Receives::late) {
  return write_table(place_messages(read_table(table, "t.csv"), receives));
}

TEST(pipeline_schedule_messages, a_send_follows_what_it_sends_and_a_receive_precedes_its_use) {
  EXPECT_EQ(completed("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
}

// At equal speeds 1F1 is computed after 0B0 begins: a rank that blocks in 0RECV_B1 must not do so
// before 0B0, while 1RECV_F1 can be met before 1B0.
TEST(pipeline_schedule_messages, one_ahead_moves_a_receive_before_an_action_that_need_not_wait) {
  EXPECT_EQ(completed("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", Receives::one_ahead),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(pipeline_schedule_messages, stages_of_one_rank_hand_over_without_a_message) {
  const std::string table = completed(write_table(generate_schedule("zb_v", {2, 1, 2})));
  EXPECT_EQ(table,
            "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0I0,0W0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,2W0,1I0,1SEND_B0,1W0\n");
}

TEST(pipeline_schedule_messages, both_of_a_pair_are_done_before_their_messages_leave) {
  const std::string table = completed(write_table(generate_schedule("dualpipe_v", {2, 4, 2})));
  EXPECT_NE(table.find("(2F2;1B0)OVERLAP_F_B,2SEND_F2,1SEND_B0,"), std::string::npos) << table;
}

TEST(pipeline_schedule_messages, at_most_four_receives_are_open_at_a_time) {
  int most = 0, late = 0;
  for_all_schedules([&](const Schedule& s, const ScheduleSize& size) {
    for (const Receives r : {Receives::late, Receives::one_ahead}) {
      const Schedule complete = place_messages(s, r);
      for (const auto& list : complete.actions) {
        int open = 0, now = 0;
        for (const Action& a : list) {
          now = is_receive(a.kind) ? ++open : 0;
          (r == Receives::late ? late : most) = std::max(r == Receives::late ? late : most, open);
          if (is_compute(a.kind) && complete.source_of(a) >= 0 &&
              !complete.same_rank(complete.source_of(a), a.stage))
            --open;
          ASSERT_GE(open, 0) << described(s, size);
        }
        ASSERT_EQ(open, 0) << described(s, size) << now;
      }
    }
  });
  EXPECT_EQ(late, 2);  // both of an overlapped pair
  EXPECT_LE(most, 4);
  EXPECT_GT(most, 1);
}

TEST(pipeline_schedule_messages, what_is_computed_stays_as_it_was) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    for (const Receives r : {Receives::late, Receives::one_ahead, Receives::when_sent})
      ASSERT_EQ(only_compute(place_messages(place_units(s), r)).actions, s.actions)
          << described(s, size);
  });
}

TEST(pipeline_schedule_messages, each_boundary_between_ranks_has_four_actions_a_micro_batch) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    std::map<ActionKind, int> counts;
    for (const auto& list : place_messages(s, Receives::one_ahead).actions)
      for (const Action& a : list) ++counts[a.kind];
    int boundaries = 0;
    for (int stage = 0; stage + 1 < s.stages(); ++stage)
      boundaries += !s.same_rank(stage, stage + 1);
    for (const ActionKind k : {ActionKind::send_forward, ActionKind::recv_forward,
                               ActionKind::send_backward, ActionKind::recv_backward})
      ASSERT_EQ(counts[k], boundaries * s.micro_batches) << described(s, size);
  });
}

TEST(pipeline_schedule_messages, what_cannot_be_completed_is_refused) {
  EXPECT_EQ(refusal([] { completed("0F0,0SEND_F0\n1F0\n"); }),
            "the table has sends and receives already: give one of what is computed, or check it "
            "as it is");
  EXPECT_EQ(refusal([] { completed("0F0\n2F0\n"); }),
            "no rank computes stage 1: give every stage from 0 to 2 a row");
  EXPECT_EQ(refusal([] { completed("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", Receives::one_ahead); }),
            "the actions of 't.csv' wait for each other in a circle, so that no order of messages "
            "helps: 'trireme plan schedule --table' shows it");
}

}  // namespace
}  // namespace trireme::pipeline::testing::messages_test
