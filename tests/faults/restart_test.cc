// SPDX-License-Identifier: Apache-2.0
// `trireme train --max-restarts`: a run that loses ranks ends with the bits of one that did not.
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "trireme/base/file.h"

namespace trireme::testing::restart_test {
namespace {

namespace fs = std::filesystem;

class faults_restart : public ::testing::Test {
 protected:
  Command start(const std::string& run, const Arguments& more = {},
                const std::string& failpoints = "") const {
    Arguments words{"train",
                    write(folder_ / "tiny.json", kTinyMlp),
                    "--run-dir",
                    run,
                    "--nproc-per-node",
                    "2",
                    "--steps",
                    "60",
                    "--set",
                    "checkpoint.every=10",
                    "--set",
                    "steps_per_print=1000000"};
    words.insert(words.end(), more.begin(), more.end());
    Environment environment;
    if (!failpoints.empty()) environment = {{"TRIREME_FAILPOINTS", failpoints}};
    return Command(trireme(words), {environment, folder_.path()});
  }
  std::string weights_of(const std::string& run) const {
    return read_file(run + "/step-00000060/model.safetensors") +
           read_file(run + "/step-00000060/state.safetensors");
  }
  std::string calm() const {
    const std::string run = folder_ / "calm";
    Command job = start(run);
    EXPECT_EQ(job.finish(), 0) << job.err;
    return weights_of(run);
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  PrivateFolder folder_;
};

TEST_F(faults_restart, a_rank_that_is_killed_twice_costs_the_steps_since_the_last_checkpoint) {
  const std::string run = folder_ / "run";
  // Its 25th step in each attempt: step 25, then 45, then the end comes first.
  Command job = start(run, {"--max-restarts", "3"}, "train.step@25#1=kill");
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_TRUE(job.left_nothing());
  EXPECT_EQ(count(job.err, "was ended by SIGKILL: all workers start again (restart 1 of 3)"), 1)
      << job.err;
  EXPECT_EQ(count(job.err, "was ended by SIGKILL: all workers start again (restart 2 of 3)"), 1);
  EXPECT_EQ(count(job.err, "going on after step 20"), 1) << job.err;
  EXPECT_EQ(count(job.err, "going on after step 40"), 1) << job.err;
  EXPECT_EQ(count(job.err, "FAILED"), 0) << job.err;
  EXPECT_EQ(weights_of(run), calm());
}

TEST_F(faults_restart, ranks_that_trireme_run_starts_again_go_on_too) {
  const std::string run = folder_ / "run", config = write(folder_ / "tiny.json", kTinyMlp);
  Command job(trireme({"run", "--nproc-per-node", "2", "--max-restarts", "2", trireme_program(),
                       "train", config, "--run-dir", run, "--steps", "60", "--set",
                       "checkpoint.every=10", "--overwrite"}),
              {{{"TRIREME_FAILPOINTS", "train.step@25#1=kill"}}, folder_.path()});
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 2) << job.err;
  EXPECT_EQ(count(job.err, "going on after step 20"), 1) << job.err;
  EXPECT_EQ(weights_of(run), calm());
}

TEST_F(faults_restart, a_step_in_memory_is_what_the_next_attempt_goes_on_from) {
  const std::string run = folder_ / "run";
  // Rank 0 is killed while it publishes the second save of an attempt; the last has only one.
  Command job = start(
      run,
      {"--max-restarts", "2", "--set", "checkpoint.async=true", "--set", "checkpoint.every=12"},
      "checkpoint.before_publish@2#0=kill");
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, "it is saved in "), 2) << job.err;
  for (const char* line : {"going on after step 24", "going on after step 48"})
    EXPECT_EQ(count(job.err, line), 1) << line << job.err;
  EXPECT_EQ(weights_of(run), calm());
}

TEST_F(faults_restart, a_job_that_fails_before_its_first_checkpoint_begins_anew) {
  const std::string run = folder_ / "run";
  Command job = start(run, {"--max-restarts", "2"}, "train.build@1#1=kill");
  EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 2) << job.err;
  EXPECT_TRUE(holds_all(job.err, {"rank      : 1 (local_rank: 1)", "Signal 9 (SIGKILL)"}));
  EXPECT_TRUE(job.left_nothing());
  const std::string other = folder_ / "other";
  Command early =
      start(other, {"--max-restarts", "9", "--set", "checkpoint.every=5"}, "train.step@8#1=kill");
  ASSERT_EQ(early.finish(seconds(60)), 1) << "8 steps an attempt, of which 5 stay: " << early.err;
  EXPECT_EQ(latest_step(other), 50);
}

TEST_F(faults_restart, what_is_wrong_with_the_configuration_is_said_once) {
  Command job =
      start(folder_ / "run", {"--max-restarts", "3", "--set", "optimizer.params.lr=nought"});
  EXPECT_EQ(job.finish(), 2) << job.err;
  EXPECT_EQ(error_lines(job.err), 1) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 0) << job.err;
}

TEST_F(faults_restart, a_job_that_went_back_to_an_earlier_step_goes_back_again) {
  const std::string run = folder_ / "run";
  ASSERT_EQ(start(run, {"--set", "checkpoint.keep=9"}).finish(), 0);
  // From step 20 of a run that has 60: killed before it saves, and after it.
  for (const auto& [failpoint, after] :
       {std::pair<std::string, int>{"train.step@5#1=kill", 20}, {"train.step@15#1=kill", 30}}) {
    const std::string copy = folder_ / ("copy" + std::to_string(after));
    fs::copy(run, copy, fs::copy_options::recursive);
    Command job(trireme({"train", "--resume", copy + "/step-00000020/", "--nproc-per-node", "2",
                         "--steps", "60", "--max-restarts", "1"}),
                {{{"TRIREME_FAILPOINTS", failpoint}}, folder_.path()});
    EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
    EXPECT_EQ(count(job.err, "going on after step 20"), after == 20 ? 2 : 1) << job.err;
    EXPECT_EQ(count(job.err, "going on after step 30"), after == 30 ? 1 : 0) << job.err;
  }
}

TEST_F(faults_restart, Ctrl_C_in_a_second_attempt_saves_and_ends_the_job) {
  const std::string run = folder_ / "run", config = write(folder_ / "tiny.json", kTinyMlp);
  Command job(endless_job(config, run, {"--max-restarts", "3"}), {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step-00000010")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(1), SIGKILL));
  ASSERT_TRUE(job.wait_for("going on after step ", seconds(60))) << job.err;
  job.send(SIGINT);
  EXPECT_EQ(job.finish(seconds(60)), 130) << job.err;
  EXPECT_EQ(count(job.err, "start again"), 1) << job.err;
  EXPECT_TRUE(job.left_nothing());
  expect_resumable(run);
}

}  // namespace
}  // namespace trireme::testing::restart_test
