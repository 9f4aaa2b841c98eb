// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/reductions.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/pipeline/schedule/schedules.h"
#include "trireme/pipeline/schedule/check.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme::pipeline::testing::reductions_test {
namespace {

std::string placed(const std::string& table) {
  return write_table(place_reductions(read_table(table, "t")));
}

TEST(pipeline_schedule_reductions, one_backwards_gradients_are_added_before_the_next_ones_come) {
  EXPECT_EQ(placed("0F0,0F1,0B0,0F2,0B1,0B2\n"),
            "0F0,0F1,0B0,0F2,0REDUCE_GRAD0,0B1,0REDUCE_GRAD1,0B2,0REDUCE_GRAD2\n");
  EXPECT_EQ(placed("0F0,1F0,1I0,0I0,1W0,0W0\n"),
            "0F0,1F0,1I0,0I0,1W0,1REDUCE_GRAD0,0W0,0REDUCE_GRAD0\n");
  // A pair stays together.
  EXPECT_EQ(placed("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1\n"),
            "0F0,1F0,1B0,1REDUCE_GRAD0,(0F1;0B0)OVERLAP_F_B,1F1,0REDUCE_GRAD0,1B1,1REDUCE_GRAD1,"
            "0B1,0REDUCE_GRAD1\n");
}

TEST(pipeline_schedule_reductions, they_replace_those_of_stages_and_a_tables_own_are_kept) {
  EXPECT_EQ(placed("0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n"),
            "0UNSHARD,0F0,0F1,0B0,0REDUCE_GRAD0,0B1,0RESHARD,0REDUCE_GRAD1\n");
  const std::string own = "0F0,0F1,0B0,0REDUCE_GRAD0,0SEND_B0,0B1,0REDUCE_GRAD1\n";
  EXPECT_EQ(placed(own), own);
}

// Every schedule, alone and with gathers and drops, with messages: the checker proves that each
// micro-batch's gradients are added once, and nothing but them has moved.
TEST(pipeline_schedule_reductions, of_every_schedule_each_is_there_once_and_as_late_as_it_can) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    if (size.micro_batches > 9 || size.ranks > 4) return;
    for (const bool units : {false, true}) {
      const Schedule with = place_reductions(units ? place_units(s, 2) : s);
      const auto found = check_schedule(place_messages(with));
      ASSERT_FALSE(found) << described(s, size) << ": " << found->sentence;
      ASSERT_EQ(only_compute(with).actions, s.actions) << described(s, size);
      for (const auto& list : with.actions) {
        std::map<std::pair<int, int>, int> times;
        for (size_t i = 0; i < list.size(); ++i) {
          if (list[i].kind != ActionKind::reduce_gradients) continue;
          ++times[{list[i].stage, list[i].micro_batch}];
          if (i + 1 == list.size()) continue;
          const bool pair = list[i + 1].overlaps_next;
          ASSERT_TRUE(gives_weight_gradient(list[i + 1].kind) ||
                      (pair && gives_weight_gradient(list[i + 2].kind)))
              << described(s, size);
        }
        for (const Action& a : list)
          if (gives_weight_gradient(a.kind)) {
            ASSERT_EQ((times[{a.stage, a.micro_batch}]), 1) << described(s, size);
          }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::pipeline::testing::reductions_test
