// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/support/fault_times.h"

// Processes of a training job are killed or stopped from outside.
namespace trireme::testing::kill_test {
namespace {

void expect_the_job_ends_when_killed(int rank) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command train(endless_job(config, run), {kSlowSteps, {}});
  ASSERT_TRUE(train.wait_for("step-00000010")) << train.err;
  const pid_t victim = train.rank(rank);
  ASSERT_GT(victim, 0);
  const auto start = Clock::now();
  ASSERT_TRUE(send_signal(victim, SIGKILL));
  EXPECT_EQ(train.finish(), 1) << train.err;
  fault_took("killed rank " + std::to_string(rank), start);
  EXPECT_LT(seconds_since(start), 5 * kSlack);

  const auto root = train.err.find("Root Cause (first observed failure):");
  ASSERT_NE(root, std::string::npos) << train.err;
  EXPECT_TRUE(holds_all(train.err.substr(root),
                        {"rank      : " + std::to_string(rank) + " (local_rank",
                         "exitcode  : -9 (pid: " + std::to_string(victim) + ")",
                         "Signal 9 (SIGKILL) received by PID " + std::to_string(victim)}));
  EXPECT_TRUE(train.left_nothing()) << train.living().size() << " processes are left";
  expect_resumable(run);
}

TEST(faults_kill, killing_rank_1_ends_the_job_and_names_it) { expect_the_job_ends_when_killed(1); }

// Rank 0 writes the checkpoints and the metrics.
TEST(faults_kill, killing_rank_0_ends_the_job_and_names_it) { expect_the_job_ends_when_killed(0); }

TEST(faults_kill, the_survivor_says_whom_it_lost) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  Command train(endless_job(config, folder / "run"), {kSlowSteps, {}});
  ASSERT_TRUE(train.wait_for("step:")) << train.err;
  ASSERT_TRUE(send_signal(train.rank(1), SIGKILL));
  EXPECT_EQ(train.finish(), 1);
  const auto failures = train.err.find("Failures:"), root = train.err.find("Root Cause");
  ASSERT_NE(failures, std::string::npos) << train.err;
  EXPECT_TRUE(holds_all(train.err.substr(failures, root - failures),
                        {"rank      : 0 (local_rank: 0)", "rank 1"}));
}

// A thousand steps before the next average, and still known at once.
TEST(faults_kill, a_rank_that_vanishes_during_an_averaging_period_is_named_at_once) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  for (const char* type : {"local_sgd", "diloco"}) {
    Command train(endless_job(config, folder / type,
                              {"--set", std::string("averaging.type=") + type, "--set",
                               "averaging.period=1000"}),
                  {kSlowSteps, {}});
    ASSERT_TRUE(train.wait_for("step-00000010")) << train.err;
    const auto start = Clock::now();
    ASSERT_TRUE(send_signal(train.rank(1), SIGKILL));
    EXPECT_EQ(train.finish(), 1) << train.err;
    EXPECT_LT(seconds_since(start), 5 * kSlack);
    const auto failures = train.err.find("Failures:"), root = train.err.find("Root Cause");
    ASSERT_NE(failures, std::string::npos) << train.err;
    EXPECT_TRUE(holds_all(train.err.substr(failures, root - failures),
                          {"rank      : 0 (local_rank: 0)", "rank 1"}));
  }
}

TEST(faults_kill, killing_the_launcher_takes_the_workers_along) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command train(endless_job(config, run), {kSlowSteps, {}});
  ASSERT_TRUE(train.wait_for("step-00000010")) << train.err;
  EXPECT_GE(train.living().size(), 4u);  // launcher, its keeper, two ranks
  const auto start = Clock::now();
  train.send(SIGKILL);
  EXPECT_EQ(train.finish(seconds(15)), 128 + SIGKILL);
  fault_took("killed launcher", start);
  EXPECT_TRUE(train.left_nothing()) << train.living().size() << " processes are left";
  expect_resumable(run);
}

TEST(faults_kill, a_rank_killed_between_writing_and_publishing_leaves_no_visible_half) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command train(endless_job(config, run),
                {{{"TRIREME_FAILPOINTS", "checkpoint.before_publish@3=kill"}}, {}});
  EXPECT_EQ(train.finish(), 1) << train.err;
  EXPECT_EQ(step_folders(run), (std::vector<std::string>{"step-00000010", "step-00000020"}));
  EXPECT_EQ(latest_step(run), 20);
  expect_resumable(run);
  for (const auto& entry : std::filesystem::directory_iterator(run))  // the dead save is cleared
    EXPECT_NE(entry.path().filename().string().rfind(".tmp", 0), 0u) << entry.path();
}

// A stopped process holds its sockets and its memory: only a deadline tells.
TEST(faults_kill, a_stopped_rank_is_a_timeout_that_names_it) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command train(endless_job(config, run, {"--set", "comm.timeout_s=3"}), {kSlowSteps, {}});
  ASSERT_TRUE(train.wait_for("step-00000010")) << train.err;
  const pid_t victim = train.rank(1);
  ASSERT_GT(victim, 0);
  const auto start = Clock::now();
  ASSERT_TRUE(send_signal(victim, SIGSTOP));
  EXPECT_EQ(train.finish(), 1) << train.err;
  EXPECT_LT(seconds_since(start), 3 + 5 * kSlack);
  EXPECT_GT(seconds_since(start), 2);
  EXPECT_TRUE(holds_all(train.err, {"rank 1"}));
  EXPECT_NE(train.err.find("within"), std::string::npos) << train.err;
  EXPECT_TRUE(train.left_nothing()) << train.living().size() << " processes are left";
}

TEST(faults_kill, a_rank_killed_before_the_world_is_complete_ends_the_job) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  // Rank 1 never gets to its first step: 'exit' in the first collective of its setup.
  const auto start = Clock::now();
  Command train(endless_job(config, folder / "run"),
                {{{"TRIREME_FAILPOINTS", "comm.post@1#1=kill"}}, {}});
  EXPECT_EQ(train.finish(), 1) << train.err;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_TRUE(holds_all(train.err, {"rank      : 1 (local_rank: 1)", "Signal 9 (SIGKILL)"}));
  EXPECT_TRUE(train.left_nothing());
}

}  // namespace
}  // namespace trireme::testing::kill_test
