// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

// Whoever gets the signal, the launcher or one rank: all ranks save the same step and leave.
namespace trireme::testing::signals_test {
namespace {

constexpr int kLauncher = -1;

struct Case {
  int signal, to, code;
};

class faults_signals : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }

  /// A run of two ranks, which saves only when it is asked to stop.
  Arguments words(const Arguments& more = {}) const {
    Arguments all{"--set", "checkpoint.every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return endless_job(folder_ / "tiny.json", run_, all);
  }
  pid_t target(const Command& job, int to) const {
    return to == kLauncher ? job.pid() : job.rank(to);
  }
  void expect_saved_and(Command& job, int code) const {
    EXPECT_EQ(job.finish(), code) << job.err;
    EXPECT_EQ(error_lines(job.err), 0) << job.err;
    EXPECT_EQ(job.err.find("FAILED"), std::string::npos) << job.err;
    EXPECT_TRUE(job.left_nothing());
    EXPECT_FALSE(std::filesystem::exists(run_ + "/run.lock"));
    const auto lines = json_lines(run_ + "/metrics.jsonl");
    EXPECT_EQ(lines.back().at("event"), "done");
    EXPECT_EQ(lines.back().at("steps"), latest_step(run_))
        << "every step that was counted is saved";
    expect_resumable(run_);
  }

  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

class faults_signals_each : public faults_signals, public ::testing::WithParamInterface<Case> {};

TEST_P(faults_signals_each, ends_the_job_after_the_step_and_saved) {
  const Case& c = GetParam();
  Command job(words(), {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  EXPECT_EQ(latest_step(run_), -1);
  ASSERT_TRUE(send_signal(target(job, c.to), c.signal));
  expect_saved_and(job, c.code);
}

INSTANTIATE_TEST_SUITE_P(
    all, faults_signals_each,
    ::testing::Values(Case{SIGTERM, kLauncher, 75}, Case{SIGHUP, kLauncher, 75},
                      Case{SIGUSR1, kLauncher, 75}, Case{SIGINT, kLauncher, 130},
                      Case{SIGTERM, 0, 75}, Case{SIGHUP, 0, 75}, Case{SIGUSR1, 0, 75},
                      Case{SIGINT, 0, 130}, Case{SIGTERM, 1, 75}, Case{SIGHUP, 1, 75},
                      Case{SIGUSR1, 1, 75}, Case{SIGINT, 1, 130}),
    [](const auto& info) {
      const Case& c = info.param;
      return std::string(::sigabbrev_np(c.signal)) +
             (c.to == kLauncher ? "_to_the_launcher" : "_to_rank_" + std::to_string(c.to));
    });

// The save takes longer than what counts as one request sent twice.
const Environment kSlowSave{
    {"TRIREME_FAILPOINTS", "train.step=sleep(5),checkpoint.before_publish=sleep(3000)"}};

struct Sequence {
  std::vector<int> signals;
  int to, code;
};

class faults_signals_different : public faults_signals,
                                 public ::testing::WithParamInterface<Sequence> {};

TEST_P(faults_signals_different, are_one_request_and_the_save_goes_on) {
  const Sequence& c = GetParam();
  Command job(words(), {kSlowSave, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  const pid_t target_pid = target(job, c.to);
  for (int signal : c.signals) {
    ASSERT_TRUE(send_signal(target_pid, signal)) << "the save is over: the test shows nothing";
    job.read_for(milliseconds(700));
  }
  expect_saved_and(job, c.code);
}

INSTANTIATE_TEST_SUITE_P(
    all, faults_signals_different,
    ::testing::Values(
        Sequence{{SIGTERM, SIGHUP}, kLauncher, 75}, Sequence{{SIGTERM, SIGUSR1}, kLauncher, 75},
        Sequence{{SIGINT, SIGHUP}, kLauncher, 130},
        Sequence{{SIGHUP, SIGUSR1, SIGHUP}, kLauncher, 75},
        Sequence{{SIGHUP, SIGTERM}, kLauncher, 75}, Sequence{{SIGUSR1, SIGTERM}, kLauncher, 75},
        Sequence{{SIGUSR1, SIGINT, SIGHUP}, kLauncher, 75}, Sequence{{SIGTERM, SIGHUP}, 1, 75},
        Sequence{{SIGTERM, SIGUSR1}, 0, 75}, Sequence{{SIGINT, SIGHUP}, 1, 130},
        Sequence{{SIGHUP, SIGTERM}, 1, 75}, Sequence{{SIGUSR1, SIGTERM}, 0, 75}),
    [](const auto& info) {
      const Sequence& c = info.param;
      std::string name;
      for (int signal : c.signals) name += std::string(::sigabbrev_np(signal)) + "_";
      return name + (c.to == kLauncher ? "to_the_launcher" : "to_rank_" + std::to_string(c.to));
    });

TEST_F(faults_signals, the_second_SIGTERM_after_a_warning_stops_at_once) {
  Command job(words(), {{{"TRIREME_FAILPOINTS", "train.step=sleep(5000)"}}, {}});
  ASSERT_TRUE(job.wait_for("step:  1")) << job.err;
  for (int signal : {SIGUSR1, SIGTERM}) {
    job.send(signal);
    job.read_for(milliseconds(300));
  }
  EXPECT_FALSE(job.living().empty()) << job.err;
  EXPECT_EQ(job.err.find("at once\n"), std::string::npos) << job.err;
  const auto start = Clock::now();
  job.send(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGUSR1) << job.err;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_NE(job.err.find("SIGTERM: stopping the workers at once"), std::string::npos) << job.err;
  EXPECT_TRUE(job.left_nothing());
}

// ZeRO's ranks write their parts together.
TEST_F(faults_signals, one_rank_of_a_sharded_run_has_all_of_them_save) {
  Command job(words({"--set", "zero_optimization.stage=2", "--set", "optimizer.type=AdamW", "--set",
                     "optimizer.params={\"lr\":0.01}"}),
              {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(1), SIGUSR1));
  expect_saved_and(job, 75);
}

TEST_F(faults_signals, a_single_rank_saves_too) {
  Arguments single = words();
  *std::find(single.begin(), single.end(), "2") = "1";
  Command job(single, {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(0), SIGHUP));
  EXPECT_EQ(job.finish(), 75) << job.err;
  EXPECT_GE(latest_step(run_), 5);
  EXPECT_TRUE(job.left_nothing());
}

// A batch system sends its warning to the launcher and to every rank.
TEST_F(faults_signals, SIGUSR1_to_every_process_and_again_is_one_request) {
  Command job(words(), {{{"TRIREME_FAILPOINTS", "train.step=sleep(100)"}}, {}});
  ASSERT_TRUE(job.wait_for("step:  2")) << job.err;
  const pid_t ranks[] = {job.rank(0), job.rank(1)};
  job.send(SIGUSR1);
  for (int i = 0; i < 2; ++i)
    for (pid_t rank : ranks) EXPECT_TRUE(send_signal(rank, SIGUSR1));
  job.send(SIGUSR1);
  expect_saved_and(job, 75);
}

TEST_F(faults_signals, under_nohup_SIGHUP_changes_nothing) {
  Arguments nohup{"nohup"};
  const Arguments rest = words();
  nohup.insert(nohup.end(), rest.begin(), rest.end());
  Command job(nohup, {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  const pid_t rank = job.rank(1);
  job.send(SIGHUP);
  EXPECT_TRUE(send_signal(rank, SIGHUP));
  ASSERT_TRUE(job.wait_for("step: 60")) << job.err;
  EXPECT_EQ(latest_step(run_), -1);
  EXPECT_TRUE(send_signal(rank, SIGUSR1)) << "which nohup does not ignore";
  EXPECT_EQ(job.finish(), 75) << job.err;
  EXPECT_GE(latest_step(run_), 60);
}

TEST_F(faults_signals, while_the_model_is_built_they_end_the_job_at_once) {
  for (int signal : {SIGHUP, SIGUSR1}) {
    Command job(words(), {{{"TRIREME_FAILPOINTS", "train.build=sleep(60000)"}}, {}});
    ASSERT_GT(job.rank(1), 0);
    ASSERT_TRUE(job.wait_for("run folder")) << job.err;
    const auto start = Clock::now();
    job.send(signal);
    EXPECT_EQ(job.finish(), 128 + signal) << job.err;
    EXPECT_LT(seconds_since(start), 5 * kSlack);
    EXPECT_TRUE(job.left_nothing());
    EXPECT_FALSE(std::filesystem::exists(run_)) << "nothing was begun";
  }
}

TEST_F(faults_signals, SIGUSR2_writes_down_what_ranks_do_and_the_run_goes_on) {
  Command job(words(), {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(1), SIGUSR2));
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(run_ + "/flight"); }, seconds(20)));
  ASSERT_TRUE(job.wait_for("step: 60")) << job.err;
  job.send(SIGTERM);
  expect_saved_and(job, 75);
}

TEST_F(faults_signals, a_save_on_a_signal_that_fails_is_the_runs_error) {
  for (int to : {kLauncher, 1}) {
    Command job(words({"--overwrite"}),
                {{{"TRIREME_FAILPOINTS", "train.step=sleep(5),checkpoint.write=error(28)"}}, {}});
    ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
    ASSERT_TRUE(send_signal(target(job, to), SIGTERM));
    expect_refusal(job, 1, {"checkpoint of step", "was not saved", "No space left on device"});
  }
}

// A program that is not ours does with SIGUSR1 what it likes.
TEST_F(faults_signals, trireme_run_forwards_SIGUSR1) {
  Command job(trireme({"run", "--nproc-per-node", "2", "sh", "-c",
                       "trap 'echo heard; exit 9' USR1; echo ready $RANK; while :; do sleep 0.02; "
                       "done"}));
  ASSERT_TRUE(job.wait_for("ready 0") && job.wait_for("ready 1")) << job.err;
  job.send(SIGUSR1);
  EXPECT_EQ(job.finish(), 128 + SIGUSR1) << job.err;
  EXPECT_NE(job.out.find("heard\nheard\n"), std::string::npos) << job.out;
  EXPECT_TRUE(job.left_nothing());
}

}  // namespace
}  // namespace trireme::testing::signals_test
