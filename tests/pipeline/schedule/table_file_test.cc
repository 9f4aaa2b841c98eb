// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/table_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/pipeline/schedule/schedules.h"
#include "tests/support/refusals.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme::pipeline::testing::table_file_test {
namespace {

using trireme::testing::has;
using trireme::testing::refusal;

TEST(pipeline_schedule_table_file, a_table_comes_as_it_stands_and_with_messages) {
  const PrivateFolder folder;
  const std::string file = folder / "t.csv";
  const Schedule compute = generate_schedule("1f1b", {2, 4, 1});
  const Schedule complete = place_messages(place_units(compute), Receives::one_ahead);
  write_file_atomic(file, write_table(compute));
  EXPECT_EQ(read_table_file(file).given.actions, compute.actions);
  EXPECT_EQ(read_table_file(file).complete.actions, place_messages(compute).actions);
  EXPECT_EQ(proven_table(file, "here").actions, compute.actions);
  EXPECT_EQ(proven_table(file, "here").name, file);
  write_file_atomic(file, write_table(complete));
  EXPECT_EQ(read_table_file(file).complete.actions, complete.actions);
  EXPECT_EQ(proven_table(file, "here").actions, complete.actions);
}

TEST(pipeline_schedule_table_file, what_is_no_table_is_one_sentence_with_who_named_the_file) {
  const PrivateFolder folder;
  const std::string file = folder / "t.csv";
  const auto refused = [&](const std::string& path) {
    const std::string text = refusal([&] { proven_table(path, "key (a.json:3)"); });
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0) << text;
    return text;
  };
  const auto of_text = [&](const std::string& text) {
    write_file_atomic(file, text);
    return refused(file);
  };
  EXPECT_EQ(refused(file), "key (a.json:3): there is no file " + file);
  EXPECT_EQ(refused(folder.path()), "key (a.json:3): " + folder.path() + " is not a file");
  EXPECT_EQ(refused("/dev/null"), "key (a.json:3): /dev/null is not a file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(has(refused(folder / "pipe"), "is not a file")) << "and nobody waits for a writer";
  EXPECT_EQ(of_text(""), "key (a.json:3): " + file +
                             " is empty: a table has one line for each "
                             "rank");
  EXPECT_TRUE(has(of_text("0F0,0X0"), file + ": row 1, column 2: '0X0' is no action"));
  EXPECT_EQ(of_text("0F0,0B0,0F1\n1F0,1B0,1F1,1B1"),
            "key (a.json:3): " + file +
                ": the backward (B or I) of stage 0, micro-batch 1 is in no list: rank 0 has it to "
                "compute (missing_backward); `trireme plan schedule --table` draws it");
  EXPECT_TRUE(has(of_text("0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
                          "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1"),
                  "none of them goes on (deadlock); "));
}

TEST(pipeline_schedule_table_file, millions_of_one_action_are_one_sentence) {
  const PrivateFolder folder;
  const std::string file = folder / "long.csv";
  std::string text;
  for (int i = 0; i < 2'000'000; ++i) text += "0F0,";
  write_file_atomic(file, text);
  EXPECT_TRUE(has(refusal([&] { proven_table(file, "key"); }), "(repeated_action)"));
}

TEST(pipeline_schedule_table_file, a_file_of_gigabytes_is_not_read_to_its_end) {
  const PrivateFolder folder;
  const std::string file = folder / "large.csv";
  {
    UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::ftruncate(fd.get(), off_t{1} << 30), 0);
  }
  EXPECT_EQ(refusal([&] { proven_table(file, "key"); }),
            "key: " + file + " is larger than 67108864 bytes, the most this file may have");
}

}  // namespace
}  // namespace trireme::pipeline::testing::table_file_test
