// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/faults/slurm.h"
#include "tests/support/paths.h"

// A program of somebody's own that calls train_main() is to its user what `trireme train` is.
namespace trireme::testing::own_main_test {
namespace {

namespace fs = std::filesystem;

const std::string kOwnMain = trireme::testing::build_path("/tests/own_main");

class train_rank_own_main : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }

  Command start(Arguments words, const Environment& env = {}) const {
    words.insert(words.begin(), kOwnMain);
    return Command(words, {env, folder_.path()});
  }
  /// Ends only by a signal.
  Arguments endless() const {
    return {"tiny.json", "--run-dir", run_, "--steps", "100000", "--set", "steps_per_print=1"};
  }
  void expect_trained(int64_t ranks, int64_t steps) const {
    const auto lines = json_lines(run_ + "/metrics.jsonl");
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.front().at("world"), ranks);
    EXPECT_EQ(lines.back().at("steps"), steps);
    EXPECT_EQ(latest_step(run_), steps);
    EXPECT_FALSE(fs::exists(run_ + "/run.lock"));
  }
  void expect_a_save_and(int code, int signal) {
    Arguments words = endless();
    words.insert(words.end(), {"--nproc-per-node", "2"});
    Command job = start(words, kSlowSteps);
    ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
    job.send(signal);
    EXPECT_EQ(job.finish(), code) << job.err;
    EXPECT_EQ(error_lines(job.err), 0) << job.err;
    EXPECT_TRUE(job.left_nothing());
    EXPECT_GE(latest_step(run_), 5);
    Command again = start({"--resume", run_, "--nproc-per-node", "2", "--steps",
                           std::to_string(latest_step(run_) + 3)});
    EXPECT_EQ(again.finish(), 0) << again.err;
    EXPECT_NE(again.err.find("going on after step"), std::string::npos) << again.err;
  }

  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(train_rank_own_main, help_is_of_this_program) {
  Command help = start({"--help"});
  EXPECT_EQ(help.finish(), 0) << help.err;
  EXPECT_TRUE(holds_all(help.out, {"Train what this program is for.\n", "Usage: " + kOwnMain,
                                   "--resume [PATH]", "--nproc-per-node", "exits with 75"}));
  EXPECT_EQ(help.out.find("trireme train"), std::string::npos) << help.out;
  EXPECT_EQ(help.err, "");
}

TEST_F(train_rank_own_main, a_wrong_command_line_is_one_sentence_and_leaves_no_folder) {
  struct Case {
    Arguments words;
    Arguments said;
  };
  const Case cases[] = {
      {{"tiny.json", "--stepz", "3"},
       {"own_main: there is no flag --stepz: did you mean --steps?", kOwnMain + " --help"}},
      {{}, {"own_main: name a configuration", kOwnMain + " config.json"}},
      {{"tiny.json", "--set", "optimizer.params.lrr=1"}, {"optimizer.params.lrr"}},
      {{"missing.json"}, {"missing.json"}},
      {{"tiny.json", "--set", "device=gpu"}, {"device is \"gpu\": use auto, cpu, cuda"}},
      {{"tiny.json", "--set", "device=privateuseone"},
       {"--set: device 'privateuseone': no library has added a device 'privateuseone'"}},
  };
  for (const Case& wrong : cases) {
    Arguments words = wrong.words;
    words.insert(words.end(), {"--run-dir", run_, "--nproc-per-node", "2"});
    Command command = start(words);
    expect_refusal(command, 2, wrong.said);
    EXPECT_FALSE(fs::exists(run_));
  }
}

TEST_F(train_rank_own_main, trains_and_goes_on_where_it_stopped) {
  Command first = start({"tiny.json", "--run-dir", run_});
  ASSERT_EQ(first.finish(), 0) << first.err;
  expect_trained(1, 6);
  for (const auto& line : json_lines(run_ + "/log.jsonl")) EXPECT_TRUE(line.contains("text"));
  Command again = start({"tiny.json", "--resume", "--run-dir", run_, "--steps", "9"});
  ASSERT_EQ(again.finish(), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step 6"), std::string::npos) << again.err;
  EXPECT_EQ(latest_step(run_), 9);
  // What is there is not written over unasked.
  Command fresh = start({"tiny.json", "--run-dir", run_});
  expect_refusal(fresh, 2, {run_, "step-00000009", "--resume", "--overwrite"});
}

TEST_F(train_rank_own_main, two_ranks_are_this_program_wherever_it_was_found) {
  // Found in PATH: argv[0] names no file here.
  const std::string path = fs::path(kOwnMain).parent_path().string() + ":" + ::getenv("PATH");
  Command job({"sh", "-c", "exec own_main tiny.json --run-dir run --nproc-per-node 2"},
              {{{"PATH", path}}, folder_.path()});
  ASSERT_EQ(job.finish(), 0) << job.err;
  expect_trained(2, 6);
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(train_rank_own_main, the_dry_run_shows_the_ranks_and_makes_no_folder) {
  Command dry = start({"tiny.json", "--dry-run", "--nproc-per-node", "2"});
  ASSERT_EQ(dry.finish(), 0) << dry.err;
  EXPECT_TRUE(holds_all(dry.out, {kOwnMain, "--config-fd", "runs/tiny/<UTC time>"}));
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(train_rank_own_main, SIGINT_finishes_the_step_saves_and_gives_130) {
  expect_a_save_and(130, SIGINT);
}

TEST_F(train_rank_own_main, SIGTERM_saves_and_gives_75) { expect_a_save_and(75, SIGTERM); }

TEST_F(train_rank_own_main, SIGUSR1_to_one_rank_saves_and_gives_75) {
  Arguments words = endless();
  words.insert(words.end(), {"--nproc-per-node", "2"});
  Command job = start(words, kSlowSteps);
  ASSERT_TRUE(job.wait_for("step:  5")) << job.err;
  ASSERT_TRUE(send_signal(job.rank(1, "RANK", seconds(20), "own_main"), SIGUSR1));
  EXPECT_EQ(job.finish(), 75) << job.err;
  EXPECT_EQ(error_lines(job.err), 0) << job.err;
  EXPECT_TRUE(job.left_nothing());
  EXPECT_GE(latest_step(run_), 5);
}

TEST_F(train_rank_own_main, resume_auto_begins_and_goes_on_with_a_good_step) {
  const auto unattended = [&](const char* steps) {
    return start({"tiny.json", "--run-dir", run_, "--resume", "auto", "--nproc-per-node", "2",
                  "--steps", steps, "--set", "checkpoint.every=2"});
  };
  Command first = unattended("6");
  ASSERT_EQ(first.finish(), 0) << first.err;
  expect_trained(2, 6);
  fs::resize_file(run_ + "/step-00000006/state.safetensors", 20);
  Command again = unattended("9");
  ASSERT_EQ(again.finish(), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step 4"), std::string::npos) << again.err;
  EXPECT_TRUE(fs::exists(run_ + "/damaged-step-00000006"));
  expect_trained(2, 9);
}

TEST_F(train_rank_own_main, a_rank_that_fails_is_reported_once) {
  Command job = start({"tiny.json", "--run-dir", run_, "--nproc-per-node", "2"},
                      {{"TRIREME_FAILPOINTS", "train.step@3#1=throw"}});
  EXPECT_EQ(job.finish(), 1) << job.err;
  EXPECT_EQ(error_lines(job.err), 1) << job.err;
  EXPECT_NE(job.err.find("train.step"), std::string::npos) << job.err;
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(train_rank_own_main, a_second_job_in_its_folder_is_refused) {
  Command first = start(endless(), kSlowSteps);
  ASSERT_TRUE(first.wait_for("step:")) << first.err;
  Command second = start({"tiny.json", "--run-dir", run_});
  expect_refusal(second, 1, {run_, "process " + std::to_string(first.pid()), "--run-dir"});
  first.send(SIGTERM);
  EXPECT_EQ(first.finish(), 75) << first.err;
}

TEST_F(train_rank_own_main, a_reader_that_leaves_does_not_end_the_run) {
  Command job({"sh", "-c",
               "{ " + kOwnMain +
                   " tiny.json --nproc-per-node 2 --run-dir run --steps 50 --set steps_per_print=1 "
                   "2>&1; echo code $? > code; } | head -3"},
              {kSlowSteps, folder_.path()});
  EXPECT_EQ(job.finish(), 0) << job.err;
  expect_trained(2, 50);
  EXPECT_EQ(read_file(folder_ / "code"), "code 0\n");
}

TEST_F(train_rank_own_main, trireme_run_starts_its_ranks) {
  if (!fs::exists(trireme_program())) GTEST_SKIP() << "this build has no command";
  const auto under_run = [&](Arguments words, const Environment& env = {}) {
    words.insert(words.begin(), {trireme_program(), "run", "--nproc-per-node", "2", kOwnMain});
    return Command(words, {env, folder_.path()});
  };
  Command no_folder = under_run({"tiny.json"});
  EXPECT_EQ(no_folder.finish(), 1) << no_folder.err;
  EXPECT_NE(no_folder.err.find("own_main: this process is rank"), std::string::npos)
      << no_folder.err;
  Command job = under_run({"tiny.json", "--run-dir", run_});
  ASSERT_EQ(job.finish(), 0) << job.err;
  expect_trained(2, 6);
  EXPECT_TRUE(job.left_nothing());
  Arguments words = endless();
  words.push_back("--overwrite");
  for (const auto& [signal, to_rank] :
       {std::pair{SIGTERM, false}, {SIGUSR1, false}, {SIGHUP, true}, {SIGUSR1, true}}) {
    Command stopped = under_run(words, kSlowSteps);
    ASSERT_TRUE(stopped.wait_for("step:  5")) << stopped.err;
    const pid_t target = to_rank ? stopped.rank(1, "RANK", seconds(20), "own_main") : stopped.pid();
    ASSERT_TRUE(send_signal(target, signal));
    EXPECT_EQ(stopped.finish(), 75) << stopped.err;
    EXPECT_EQ(stopped.err.find("FAILED"), std::string::npos) << stopped.err;
    EXPECT_GE(latest_step(run_), 5);
    EXPECT_TRUE(stopped.left_nothing());
  }
}

TEST_F(train_rank_own_main, mpirun_starts_its_ranks) {
  if (!on_path("mpirun")) GTEST_SKIP() << "mpirun is not installed";
  Arguments words{"mpirun", "-np", "2", "--oversubscribe"};
  if (::geteuid() == 0) words.push_back("--allow-run-as-root");
  words.insert(words.end(), {kOwnMain, "tiny.json", "--run-dir", run_});
  Command job(words, {{}, folder_.path()});
  ASSERT_EQ(job.finish(), 0) << job.err;
  expect_trained(2, 6);
  EXPECT_TRUE(job.left_nothing());
}

}  // namespace
}  // namespace trireme::testing::own_main_test
