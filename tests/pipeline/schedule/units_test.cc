// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/units.h"

#include <gtest/gtest.h>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"
#include "trireme/pipeline/schedule/check.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/reductions.h"

namespace trireme::pipeline::testing::units_test {
namespace {

using trireme::testing::refusal;

TEST(pipeline_schedule_units, a_stage_is_whole_for_the_step_and_added_once) {
  EXPECT_EQ(
      write_table(place_units(generate_schedule("interleaved_1f1b", {1, 2, 2}))).substr(0, 30),
      "0UNSHARD,0F0,1UNSHARD,1F0,1B0,");
  const std::string table = write_table(place_units(read_table("0F0,1F0,1I0,0I0,1W0,0W0\n", "t")));
  EXPECT_EQ(table,
            "0UNSHARD,0F0,1UNSHARD,1F0,1I0,0I0,1W0,1REDUCE_GRAD,1RESHARD,0W0,0REDUCE_GRAD,"
            "0RESHARD\n");
}

TEST(pipeline_schedule_units, with_fewer_stages_whole_others_are_dropped_and_gathered_anew) {
  const Schedule s = read_table("0F0,0F1,1F0,1F1,1B1,1B0,0B1,0B0\n", "t.csv");
  EXPECT_EQ(write_table(place_units(s, 1)),
            "0UNSHARD,0F0,0F1,0RESHARD,1UNSHARD,1F0,1F1,1B1,1B0,1REDUCE_GRAD,1RESHARD,0UNSHARD,0B1,"
            "0B0,0REDUCE_GRAD,0RESHARD\n");
  EXPECT_EQ(write_table(place_units(s, 2)),
            "0UNSHARD,1UNSHARD,0F0,0F1,1F0,1F1,1B1,1B0,1REDUCE_GRAD,1RESHARD,0B1,0B0,0REDUCE_GRAD,"
            "0RESHARD\n");
}

TEST(pipeline_schedule_units, no_more_stages_are_whole_than_were_allowed) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    for (int whole = 2; whole <= 3; ++whole)
      for (const auto& list : place_units(s, whole).actions) {
        int now = 0;
        for (const Action& a : list) {
          now += a.kind == ActionKind::unshard ? 1 : a.kind == ActionKind::reshard ? -1 : 0;
          ASSERT_LE(now, whole) << described(s, size);
        }
        ASSERT_EQ(now, 0) << described(s, size);
      }
  });
}

TEST(pipeline_schedule_units, reductions_that_a_table_has_stay_the_only_ones) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    if (size.micro_batches > 9 || size.ranks > 4) return;
    const Schedule reduced = place_reductions(s);
    for (int whole = 0; whole <= 3; whole += 2) {
      const Schedule both = place_units(reduced, whole);
      Schedule without = both;
      for (auto& list : without.actions)
        std::erase_if(list, [](const Action& a) { return is_gather_or_drop(a.kind); });
      ASSERT_EQ(write_table(without), write_table(reduced)) << described(s, size);
      const auto found = check_schedule(place_messages(both));
      ASSERT_FALSE(found) << described(s, size) << ": " << found->sentence;
    }
  });
}

TEST(pipeline_schedule_units, what_has_units_already_or_cannot_be_is_refused) {
  const Schedule s = generate_schedule("dualpipe_v", {2, 4, 2});
  EXPECT_EQ(refusal([&] { place_units(place_units(s)); }),
            "the table gathers and drops units already");
  EXPECT_EQ(refusal([&] { place_units(s, -1); }),
            "-1 stages whole at a time: choose 0 (all) or more");
  EXPECT_EQ(refusal([&] { place_units(s, 1); }),
            "an overlapped pair uses two stages at once: keep 2 or more whole");
}

}  // namespace
}  // namespace trireme::pipeline::testing::units_test
