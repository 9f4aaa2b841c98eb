// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

// Who starts a run may stop looking: `| head`, a closed terminal, streams that were never there.
namespace trireme::testing::closed_streams_test {
namespace {

class faults_closed_streams : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }
  /// `trireme train tiny.json MORE` in a shell; what the shell says.
  Command shell(const std::string& before, const std::string& after) {
    return Command({"sh", "-c",
                    before + " " + trireme_program() +
                        " train tiny.json --nproc-per-node 2 --run-dir run --steps 200 --set "
                        "steps_per_print=1 " +
                        after},
                   {{{"TRIREME_FAILPOINTS", "train.step=sleep(2)"}}, folder_.path()});
  }
  void expect_all_steps() {
    EXPECT_EQ(latest_step(folder_ / "run"), 200);
    EXPECT_EQ(json_lines(folder_ / "run/metrics.jsonl").back().at("steps"), 200);
  }
  PrivateFolder folder_;
};

TEST_F(faults_closed_streams, a_reader_that_leaves_does_not_end_the_run) {
  Command job = shell("{", "2>&1; echo code $? > code; } | head -3");
  EXPECT_EQ(job.finish(), 0) << job.err;
  expect_all_steps();
  EXPECT_EQ(read_file(folder_ / "code"), "code 0\n");
}

TEST_F(faults_closed_streams, a_reader_that_was_never_there_does_not_end_the_run) {
  Command job = shell("{", "2>&1; echo code $? > code; } | true");
  EXPECT_EQ(job.finish(), 0) << job.err;
  expect_all_steps();
  EXPECT_EQ(read_file(folder_ / "code"), "code 0\n");
}

TEST_F(faults_closed_streams, metrics_that_nobody_reads_any_more_do_not_end_the_run) {
  Command job = shell("{", "--metrics -; echo code $? > code; } | head -3");
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_NE(job.out.find("\"event\":\"start\""), std::string::npos) << job.out;
  EXPECT_NE(job.err.find("the reader of the metrics is gone"), std::string::npos) << job.err;
  expect_all_steps();
  EXPECT_EQ(read_file(folder_ / "code"), "code 0\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "-"));
}

TEST_F(faults_closed_streams, nothing_is_printed_into_the_files_of_a_run_whose_streams_are_closed) {
  Command job = shell("", "0<&- >&- 2>&-");
  EXPECT_EQ(job.finish(), 0);
  expect_all_steps();
  for (const auto& line : json_lines(folder_ / "run/metrics.jsonl"))
    EXPECT_TRUE(line.contains("event") || line.contains("step")) << line;
  for (const auto& line : json_lines(folder_ / "run/log.jsonl")) EXPECT_TRUE(line.contains("text"));
  expect_resumable(folder_ / "run");
}

TEST_F(faults_closed_streams, a_stopped_rank_delays_SIGTERM_by_seconds_and_the_run_is_saved) {
  Command job(endless_job(folder_ / "tiny.json", folder_ / "run", {"--set", "checkpoint.every=0"}),
              {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  const pid_t stopped = job.rank(1);
  ASSERT_GT(stopped, 0);
  ASSERT_TRUE(send_signal(stopped, SIGSTOP));
  const auto start = Clock::now();
  job.send(SIGTERM);
  EXPECT_EQ(job.finish(seconds(60)), 75) << job.err;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  expect_resumable(folder_ / "run");
}

}  // namespace
}  // namespace trireme::testing::closed_streams_test
