// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/csv.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme::pipeline::testing::csv_test {
namespace {

using trireme::testing::refusal;

std::string refused(const std::string& text) {
  return refusal([&] { read_table(text, "t.csv"); });
}

TEST(pipeline_schedule_csv, what_is_written_reads_as_the_same_lists) {
  for_all_schedules([](const Schedule& s, const ScheduleSize& size) {
    const Schedule complete = place_messages(place_units(s), Receives::one_ahead);
    for (const Schedule& one : {s, complete}) {
      const Schedule back = read_table(write_table(one), "t.csv");
      ASSERT_EQ(back.actions, one.actions) << described(s, size);
      ASSERT_EQ(back.rank_of_stage, one.rank_of_stage) << described(s, size);
      ASSERT_EQ(back.micro_batches, one.micro_batches) << described(s, size);
    }
  });
}

TEST(pipeline_schedule_csv, every_form_of_pytorchs_grammar_is_read) {
  const Schedule s = read_table(
      "0UNSHARD, 0F0 ,,0SEND_F0,\"0RECV_B0\",0I0,0W0,0REDUCE_GRAD,0RESHARD\r\n"
      "1RECV_F0,(1F0;1B0)OVERLAP_F_B,1SEND_B0\r\n\r\n",
      "t.csv");
  using K = ActionKind;
  const std::vector<Action> first{{K::unshard, 0},           {K::forward, 0, 0},
                                  {K::send_forward, 0, 0},   {K::recv_backward, 0, 0},
                                  {K::input_gradient, 0, 0}, {K::weight_gradient, 0, 0},
                                  {K::reduce_gradients, 0},  {K::reshard, 0}};
  const std::vector<Action> second{{K::recv_forward, 1, 0},
                                   {K::forward, 1, 0, true},
                                   {K::backward, 1, 0},
                                   {K::send_backward, 1, 0}};
  EXPECT_EQ(s.actions, (std::vector<std::vector<Action>>{first, second}));
  EXPECT_EQ(s.rank_of_stage, (std::vector<int>{0, 1}));
}

TEST(pipeline_schedule_csv, a_cell_that_is_no_action_is_named_by_row_column_and_text) {
  const std::string kinds =
      "the kind is one of F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, "
      "REDUCE_GRAD";
  const std::string pair = "an overlapped pair is written (0F1;3B2)OVERLAP_F_B";
  const std::pair<std::string, std::string> cases[] = {
      {"0X1", kinds},
      {"0f1", kinds},
      {"2BW0", kinds},
      {"0SEND_1", kinds},
      {"F1", "a cell begins with the number of a stage, as in 0F1"},
      {"-1F0", "a cell begins with the number of a stage, as in 0F1"},
      {"1234567F0", "a cell begins with the number of a stage, as in 0F1"},
      {"0F", "a cell ends with the number of a micro-batch, as in 0F1"},
      {"0F99999999999999999999", "a cell ends with the number of a micro-batch, as in 0F1"},
      {"0F1x", "nothing may follow the number of the micro-batch"},
      {"0F1 2", "nothing may follow the number of the micro-batch"},
      {"9000F0", "stages are numbered from 0 to 8191"},
      {"0F70000", "micro-batches are numbered from 0 to 65535"},
      {"0UNSHARD1", "what concerns a whole stage has no micro-batch"},
      {"0REDUCE_GRAD1x", "nothing may follow the number of the micro-batch"},
      {"(0F1;1B0)", pair},
      {"(0F1)OVERLAP_F_B", pair},
      {"(0F1;1B0", pair},
      {"(0F1;1F0)OVERLAP_F_B", "an overlapped pair is one forward F and one backward B or I"},
      {"(0W1;1F0)OVERLAP_F_B", "an overlapped pair is one forward F and one backward B or I"},
  };
  for (const auto& [cell, why] : cases)
    EXPECT_EQ(refused("0F0,0B0\n1F0,," + cell + ",1B0\n"),
              "t.csv: row 2, column 3: '" + cell + "' is no action: " + why);
}

TEST(pipeline_schedule_csv, what_a_terminal_should_not_get_is_shown_as_question_marks) {
  EXPECT_NE(refused(std::string("0F0,\x1b[2J\0z", 9)).find("'?[2J?'"), std::string::npos)
      << refused(std::string("0F0,\x1b[2J\0z", 9));
  EXPECT_NE(refused(std::string(5000, 'x')).find("'" + std::string(40, 'x') + "...'"),
            std::string::npos);
}

TEST(pipeline_schedule_csv, a_table_that_would_take_gigabytes_is_refused) {
  EXPECT_EQ(refused("8000F60000"),
            "t.csv speaks of 8001 stages and 60001 micro-batches: together more than the 1048576 "
            "that a table may have");
  EXPECT_EQ(refused(std::string(2000, '\n') + "0F0"),
            "t.csv has more than 1024 lines, one for each rank");
}

TEST(pipeline_schedule_csv, nothing_is_no_table) {
  for (const char* text : {"", "\n\n", "  \r\n"})
    EXPECT_EQ(refused(text), "t.csv is empty: a table has one line for each rank") << text;
}

// Whatever the bytes: a schedule or one UsageError.
TEST(pipeline_schedule_csv, random_bytes_are_read_or_refused_in_one_sentence) {
  std::mt19937 random(20);
  const std::string alphabet = "0123456789FIWB,;()\n\r \"SENDRCV_UHAG-\xff\x01";
  int read = 0, refusals = 0;
  const std::string good = write_table(place_messages(generate_schedule("dualpipe_v", {2, 4, 2})));
  for (int round = 0; round < 4000; ++round) {
    std::string text = round % 2 ? good : std::string(random() % 60, '0');
    for (size_t change = 0; change < 1 + random() % 4; ++change)
      if (!text.empty()) text[random() % text.size()] = alphabet[random() % alphabet.size()];
    try {
      const Schedule s = read_table(text, "t.csv");
      EXPECT_EQ(read_table(write_table(s), "t.csv").actions, s.actions);
      ++read;
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      ++refusals;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refusals, 1000);
}

}  // namespace
}  // namespace trireme::pipeline::testing::csv_test
