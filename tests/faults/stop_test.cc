// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

// Ctrl-C and a scheduler's SIGTERM: the step is finished and saved.
namespace trireme::testing::stop_test {
namespace {

void expect_a_save_and(int code, int signal) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command train(endless_job(config, run, {"--set", "checkpoint.every=0"}), {kSlowSteps, {}});
  ASSERT_TRUE(train.wait_for("step:  5")) << train.err;
  EXPECT_EQ(latest_step(run), -1);
  train.send(signal);
  EXPECT_EQ(train.finish(), code) << train.err;
  EXPECT_EQ(error_lines(train.err), 0) << train.err;
  EXPECT_TRUE(train.left_nothing());

  const auto lines = json_lines(run + "/metrics.jsonl");
  EXPECT_EQ(lines.back().at("event"), "done");
  EXPECT_GE(latest_step(run), 5);
  EXPECT_EQ(lines.back().at("steps"), latest_step(run));  // every step that was counted is saved
  expect_resumable(run);
}

TEST(faults_stop, SIGINT_finishes_the_step_saves_and_gives_130) { expect_a_save_and(130, SIGINT); }

TEST(faults_stop, SIGTERM_saves_and_gives_75) { expect_a_save_and(75, SIGTERM); }

TEST(faults_stop, a_second_SIGINT_stops_at_once) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  // The fifth step takes a minute.
  Command train(endless_job(config, run),
                {{{"TRIREME_FAILPOINTS", "train.step@5=sleep(60000)"}}, {}});
  ASSERT_TRUE(train.wait_for("step:  4")) << train.err;
  train.send(SIGINT);
  ASSERT_TRUE(train.wait_for("SIGINT: asked the workers to stop")) << train.err;
  const auto start = Clock::now();
  train.read_for(milliseconds(300));  // two within 100 ms count as one request
  EXPECT_EQ(train.living().empty(), false);
  train.send(SIGINT);
  EXPECT_EQ(train.finish(), 130) << train.err;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_EQ(latest_step(run), -1);
  EXPECT_TRUE(train.left_nothing());
}

// A batch system at its time limit signals every process of the job: the ranks hear it twice, from
// it and from the launcher.
TEST(faults_stop, SIGTERM_to_every_process_is_one_request) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command train(endless_job(config, run, {"--set", "checkpoint.every=0"}),
                {{{"TRIREME_FAILPOINTS", "train.step=sleep(100)"}}, {}});
  ASSERT_TRUE(train.wait_for("step:  2")) << train.err;
  const pid_t workers[] = {train.rank(0), train.rank(1)};
  ASSERT_GT(workers[0], 0);
  ASSERT_GT(workers[1], 0);
  train.send(SIGTERM);
  for (pid_t worker : workers) EXPECT_TRUE(send_signal(worker, SIGTERM));
  EXPECT_EQ(train.finish(), 75) << train.err;
  EXPECT_GE(latest_step(run), 2);
}

}  // namespace
}  // namespace trireme::testing::stop_test
