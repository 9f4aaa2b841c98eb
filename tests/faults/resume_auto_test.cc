// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tests/faults/job.h"
#include "tests/faults/slurm.h"

// --resume auto: the same command, started again and again by somebody who does not look.
namespace trireme::testing::resume_auto_test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class faults_resume_auto : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }

  Command start(const Arguments& more = {}, const Environment& env = {}) const {
    Arguments words{"train", "tiny.json",        "--run-dir", run_,    "--resume",
                    "auto",  "--nproc-per-node", "2",         "--set", "checkpoint.every=2",
                    "--set", "checkpoint.keep=9"};
    words.insert(words.end(), more.begin(), more.end());
    return Command(trireme(words), {env, folder_.path()});
  }
  void train(const Arguments& more = {}) const {
    Command job = start(more);
    ASSERT_EQ(job.finish(), 0) << job.err;
  }
  void expect_goes_on_after(int64_t step, Command&& job, int64_t steps = 9) const {
    EXPECT_EQ(job.finish(), 0) << job.err;
    EXPECT_NE(job.err.find("going on after step " + std::to_string(step)), std::string::npos)
        << job.err;
    EXPECT_EQ(latest_step(run_), steps);
    EXPECT_TRUE(job.left_nothing());
  }
  std::string at(const char* step) const { return run_ + "/step-0000000" + step; }
  void truncate(const std::string& step) const { fs::resize_file(step + "/model.safetensors", 20); }
  Names names() const {
    Names found;
    for (const auto& entry : fs::directory_iterator(run_))
      if (entry.is_directory()) found.insert(entry.path().filename());
    return found;
  }

  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(faults_resume_auto, no_folder_and_an_empty_one_begin_a_run) {
  Command none = start();
  ASSERT_EQ(none.finish(), 0) << none.err;
  EXPECT_NE(none.err.find("there is no checkpoint in " + run_), std::string::npos) << none.err;
  EXPECT_EQ(latest_step(run_), 6);
  fs::remove_all(run_);
  fs::create_directory(run_);
  train();
  EXPECT_EQ(names(), (Names{"step-00000002", "step-00000004", "step-00000006"}));
  EXPECT_EQ(steps_in(run_ + "/metrics.jsonl").size(), 6u);
}

TEST_F(faults_resume_auto, the_same_command_goes_on_and_at_last_finds_the_run_finished) {
  Command first = start({"--steps", "100000"}, kSlowSteps);
  ASSERT_TRUE(first.wait_for("saved ")) << first.err;
  first.send(SIGKILL);
  EXPECT_EQ(first.finish(), 128 + SIGKILL);
  const int64_t there = latest_step(run_);
  expect_goes_on_after(there, start({"--steps", std::to_string(there + 3)}), there + 3);
  Command done = start({"--steps", std::to_string(there + 3)});
  EXPECT_EQ(done.finish(), 0) << done.err;
  EXPECT_NE(done.err.find("the run is finished"), std::string::npos) << done.err;
}

TEST_F(faults_resume_auto, a_run_that_was_killed_before_its_first_checkpoint_begins_again) {
  Command first = start({"--steps", "100000", "--set", "checkpoint.every=0"}, kSlowSteps);
  ASSERT_TRUE(first.wait_for("step: 10")) << first.err;
  first.send(SIGKILL);
  EXPECT_EQ(first.finish(), 128 + SIGKILL);
  train();
  EXPECT_EQ(steps_in(run_ + "/metrics.jsonl"), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_GE(steps_in(run_ + "/metrics-old-1.jsonl").size(), 10u) << "of the run that was killed";
}

TEST_F(faults_resume_auto, a_run_whose_steps_were_deleted_begins_again_and_keeps_the_old_metrics) {
  train();
  for (const char* step : {"2", "4", "6"}) fs::remove_all(at(step));
  fs::remove(run_ + "/latest");
  Command job = start({"--steps", "3"});
  ASSERT_EQ(job.finish(), 0) << job.err;
  EXPECT_TRUE(holds_all(job.err, {"there is no checkpoint in " + run_ + ": the run begins",
                                  "its metrics are in " + run_ + "/metrics-old-1.jsonl now"}))
      << job.err;
  EXPECT_EQ(steps_in(run_ + "/metrics-old-1.jsonl").size(), 6u);
  EXPECT_EQ(steps_in(run_ + "/metrics.jsonl").size(), 3u);
  Command anew(trireme({"train", "tiny.json", "--run-dir", run_, "--overwrite"}),
               {{}, folder_.path()});
  ASSERT_EQ(anew.finish(), 0) << anew.err;
  EXPECT_FALSE(fs::exists(run_ + "/metrics-old-1.jsonl"));
}

TEST_F(faults_resume_auto, a_relative_folder_of_checkpoints_is_found_from_anywhere) {
  const std::string there = fs::canonical(folder_.path()).string() + "/rel";
  fs::create_directory(there);
  const auto trained = [&](const Arguments& more, const std::string& from) {
    Arguments words{"train", "--set", "checkpoint.folder=ck"};
    words.insert(words.end(), more.begin(), more.end());
    Command job(trireme(words), {{}, from});
    EXPECT_EQ(job.finish(), 0) << job.err;
    return job.err;
  };
  trained({"../tiny.json", "--run-dir", "rd", "--steps", "4"}, there);
  const auto config = nlohmann::json::parse(read_file(there + "/rd/config.json"));
  EXPECT_EQ(config["checkpoint"]["folder"], there + "/ck");
  const std::string said = trained(
      {"tiny.json", "--resume", "auto", "--run-dir", "rel/rd", "--steps", "6"}, folder_.path());
  EXPECT_NE(said.find("going on after step 4"), std::string::npos) << said;
  EXPECT_EQ(latest_step(there + "/ck"), 6);
  EXPECT_FALSE(fs::exists(folder_ / "ck"));
  EXPECT_EQ(steps_in(there + "/rd/metrics.jsonl").size(), 6u);
  Command plain(trireme({"train", "--resume", "rel/rd", "--steps", "8"}), {{}, folder_.path()});
  EXPECT_EQ(plain.finish(), 0) << plain.err;
  EXPECT_EQ(latest_step(there + "/ck"), 8);
}

TEST_F(faults_resume_auto, a_run_that_is_to_save_elsewhere_goes_on_from_where_it_saved) {
  train();
  Command job = start({"--steps", "9", "--set", "checkpoint.folder=" + (folder_ / "elsewhere")});
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_NE(job.err.find("going on after step 6"), std::string::npos) << job.err;
  EXPECT_EQ(latest_step(folder_ / "elsewhere"), 9);
  EXPECT_EQ(latest_step(run_), 6);
}

TEST_F(faults_resume_auto,
       a_truncated_step_is_set_aside_with_one_sentence_and_the_one_before_is_used) {
  train();
  truncate(at("6"));
  Command job = start({"--steps", "9"});
  expect_goes_on_after(4, std::move(job));
  EXPECT_TRUE(holds_all(job.err, {at("6") + " is damaged and is now called damaged-step-00000006",
                                  "model.safetensors has 20 bytes"}));
  EXPECT_EQ(names(), (Names{"damaged-step-00000006", "step-00000002", "step-00000004",
                            "step-00000006", "step-00000008", "step-00000009"}));
}

TEST_F(faults_resume_auto, what_only_looks_like_a_step_is_left_alone) {
  for (const char* junk : {"100", "step-00000100", "step-7", "checkpoint-9"})
    fs::create_directories(run_ + "/" + junk);
  train();
  EXPECT_EQ(latest_step(run_), 6);
  expect_goes_on_after(6, start({"--steps", "9"}));
  for (const char* junk : {"100", "step-00000100", "step-7", "checkpoint-9"})
    EXPECT_TRUE(fs::is_empty(run_ + "/" + junk)) << junk;
}

TEST_F(faults_resume_auto, a_run_of_damaged_steps_alone_is_refused_again_and_again) {
  train();
  for (const char* step : {"2", "4", "6"}) truncate(at(step));
  const std::string config = read_file(run_ + "/config.json");
  for (int i = 0; i < 2; ++i) {
    Command job = start({"--steps", "9"});
    expect_refusal(job, 1, {"every checkpoint in " + run_ + " is damaged", "--overwrite"});
    EXPECT_EQ(names(),
              (Names{"damaged-step-00000002", "damaged-step-00000004", "damaged-step-00000006"}));
    EXPECT_EQ(read_file(run_ + "/config.json"), config);
    EXPECT_EQ(steps_in(run_ + "/metrics.jsonl").size(), 6u);
  }
  Command anew(trireme({"train", "tiny.json", "--run-dir", run_, "--overwrite"}),
               {{}, folder_.path()});
  EXPECT_EQ(anew.finish(), 0) << anew.err;
  EXPECT_EQ(names(), Names{"step-00000006"}) << "the damaged ones were the run's, too";
}

TEST_F(faults_resume_auto, sharded_ranks_agree_on_a_step_that_is_whole_on_all_of_them) {
  const Arguments zero{"--set", "zero_optimization.stage=2"};
  train(zero);
  // Rank 0's file is whole.
  std::string of_rank_1;
  for (const auto& entry : fs::directory_iterator(at("6")))
    if (entry.path().filename().string().find("rank00001") != std::string::npos)
      of_rank_1 = entry.path();
  ASSERT_NE(of_rank_1, "");
  fs::resize_file(of_rank_1, fs::file_size(of_rank_1) - 1);
  Arguments more = zero;
  more.insert(more.end(), {"--steps", "9"});
  expect_goes_on_after(4, start(more));
  EXPECT_TRUE(fs::exists(run_ + "/damaged-step-00000006"));
}

TEST_F(faults_resume_auto, without_a_folder_it_takes_the_newest_run_of_the_configuration) {
  const auto by_name = [&](const Arguments& more) {
    Arguments words{"train", "tiny.json", "--resume=auto"};
    words.insert(words.end(), more.begin(), more.end());
    return Command(trireme(words), {{}, folder_.path()});
  };
  for (int i = 0; i < 2; ++i) {
    Command job = by_name({});
    ASSERT_EQ(job.finish(), 0) << job.err;
    int runs = 0;
    for ([[maybe_unused]] const auto& run : fs::directory_iterator(folder_ / "runs/tiny")) ++runs;
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(job.err.find("the run is finished") != std::string::npos, i == 1) << job.err;
  }
  Command further = by_name({"--steps", "9"});
  EXPECT_EQ(further.finish(), 0) << further.err;
  EXPECT_NE(further.err.find("going on after step 6"), std::string::npos) << further.err;
}

TEST_F(faults_resume_auto, the_folder_alone_is_enough_once_the_run_is_there) {
  const Arguments words{"train", "--resume",         "auto", "--run-dir", run_, "--steps",
                        "9",     "--nproc-per-node", "2"};
  Command too_early(trireme(words), {{}, folder_.path()});
  expect_refusal(too_early, 2, {"there is no run in " + run_, "name the configuration"});
  EXPECT_FALSE(fs::exists(run_));
  train();
  expect_goes_on_after(6, Command(trireme(words), {{}, folder_.path()}));
  Command nothing(trireme({"train", "--resume", "auto"}), {{}, folder_.path()});
  expect_refusal(nothing, 2, {"--resume auto", "--run-dir"});
  Command both = start({"--overwrite"});
  expect_refusal(both, 2, {"--resume", "--overwrite", "give one of them"});
}

TEST_F(faults_resume_auto, a_file_that_is_not_ours_is_not_written_over) {
  fs::create_directory(run_);
  write(run_ + "/config.json", "{\"editor\": \"vi\"}");
  Command job = start();
  expect_refusal(job, 2, {"config.json", "not a file that trireme wrote"});
  EXPECT_EQ(read_file(run_ + "/config.json"), "{\"editor\": \"vi\"}");
}

TEST_F(faults_resume_auto, steps_of_another_run_are_not_gone_on_from) {
  const Arguments steps{"--set", "checkpoint.folder=" + (folder_ / "steps")};
  train(steps);
  Arguments more = steps;
  more.insert(more.end(), {"--steps", "9"});
  Command job = start(more);  // its own
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(latest_step(folder_ / "steps"), 9);
  more.insert(more.end(), {"--run-dir", folder_ / "other"});
  Command other = start(more);
  expect_refusal(other, 2, {"checkpoint.folder", "another run"});
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

TEST_F(faults_resume_auto, ranks_of_mpirun_begin_and_go_on_together) {
  if (!on_path("mpirun")) GTEST_SKIP() << "mpirun is not installed";
  const auto under_mpirun = [&](const char* steps) {
    Arguments words{"mpirun", "-np", "2", "--oversubscribe"};
    if (::geteuid() == 0) words.push_back("--allow-run-as-root");
    for (const auto& word : trireme({"train", "tiny.json", "--run-dir", run_, "--resume", "auto",
                                     "--steps", steps, "--set", "checkpoint.every=2"}))
      words.push_back(word);
    return Command(words, {{}, folder_.path()});
  };
  Command first = under_mpirun("6");
  ASSERT_EQ(first.finish(), 0) << first.err;
  EXPECT_EQ(latest_step(run_), 6);
  truncate(at("6"));
  expect_goes_on_after(4, under_mpirun("9"));
}

}  // namespace
}  // namespace trireme::testing::resume_auto_test
