// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/faults/job.h"
#include "tests/faults/slurm.h"

// A run folder has one owner, and a run leaves other runs alone.
namespace trireme::testing::run_folder_test {
namespace {

namespace fs = std::filesystem;

class faults_run_folder : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }
  Command start(Arguments words, const Environment& env = {}) {
    return Command(trireme(std::move(words)), {env, folder_.path()});
  }
  Arguments train(const Arguments& more) const {
    Arguments words{"train", "tiny.json", "--run-dir", run_};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void train_once(const Arguments& more = {}) {
    Command command = start(train(more));
    ASSERT_EQ(command.finish(), 0) << command.err;
  }
  /// Paths below the run folder.
  std::set<std::string> files() const {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(run_))
      found.insert(fs::relative(entry.path(), run_).string());
    return found;
  }

  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(faults_run_folder, a_second_job_is_refused_and_the_first_trains_on_as_it_was) {
  Command first(endless_job(folder_ / "tiny.json", run_), {kSlowSteps, {}});
  ASSERT_TRUE(first.wait_for("step:")) << first.err;
  const std::string config = read_file(run_ + "/config.json");
  for (const Arguments& words :
       {train({"--set", "training.seed=7"}), train({"--overwrite"}), train({"--take-over"}),
        Arguments{"train", "--resume", "--run-dir", run_}, Arguments{"train", "--resume", run_}}) {
    Command second = start(words);
    expect_refusal(second, 1,
                   {run_, "process " + std::to_string(first.pid()) + " on ", "--run-dir"});
  }
  EXPECT_EQ(read_file(run_ + "/config.json"), config);
  first.send(SIGTERM);
  EXPECT_EQ(first.finish(), 75) << first.err;
  EXPECT_FALSE(fs::exists(run_ + "/run.lock"));
  expect_resumable(run_);
}

TEST_F(faults_run_folder, workers_have_the_configuration_of_their_launcher_whatever_its_file_says) {
  std::string other = nlohmann::json::parse(kTinyMlp).dump();
  other.insert(1, "\"_origins\": {},");
  other.replace(other.find("\"training\":{"), 12, "\"training\":{\"seed\":7,");
  std::atomic<bool> stop{false};
  std::thread rival([&] {
    while (!stop) {
      if (fs::exists(run_ + "/config.json")) write(run_ + "/config.json", other);
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  Command job = start(train({"--nproc-per-node", "2"}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  stop = true;
  rival.join();
  EXPECT_EQ(json_lines(run_ + "/metrics.jsonl").front().at("seed"), 42);
}

TEST_F(faults_run_folder, a_fresh_run_into_a_folder_with_a_run_is_refused_and_changes_nothing) {
  train_once();
  const auto before = files();
  const std::string metrics = read_file(run_ + "/metrics.jsonl"),
                    config = read_file(run_ + "/config.json");
  Command again = start(train({"--set", "training.seed=7"}));
  expect_refusal(again, 2, {run_, "step-00000006", "--resume", "--overwrite"});
  EXPECT_EQ(files(), before);
  EXPECT_EQ(read_file(run_ + "/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(run_ + "/config.json"), config);
  // Without its checkpoints, the metrics are a run still.
  fs::remove_all(run_ + "/step-00000006");
  fs::remove(run_ + "/latest");
  Command metrics_alone = start(train({}));
  expect_refusal(metrics_alone, 2, {run_, "its metrics", "--overwrite"});
}

TEST_F(faults_run_folder, overwrite_keeps_nothing_of_the_old_run_and_all_that_is_not_a_runs) {
  train_once({"--set", "checkpoint.every=3"});
  write(run_ + "/notes.txt", "mine");
  fs::create_directory(run_ + "/step-by-step");
  fs::create_directory(run_ + "/step-00000099");  // a name, and no checkpoint in it
  fs::create_symlink("step-00000003", run_ + "/epoch_1");
  fs::create_symlink("notes.txt", run_ + "/mine");
  Command again = start(train({"--overwrite", "--steps", "4", "--set", "training.seed=7"}));
  ASSERT_EQ(again.finish(), 0) << again.err;
  EXPECT_EQ(step_folders(run_),
            (std::vector<std::string>{"step-00000004", "step-00000099", "step-by-step"}));
  EXPECT_FALSE(fs::is_symlink(run_ + "/epoch_1")) << "it would keep the new run's step 3";
  EXPECT_TRUE(fs::is_symlink(run_ + "/mine"));
  EXPECT_EQ(steps_in(run_ + "/metrics.jsonl"), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(json_lines(run_ + "/metrics.jsonl").front().at("seed"), 7);
  EXPECT_EQ(read_file(run_ + "/notes.txt"), "mine");
}

TEST_F(faults_run_folder, overwrite_of_a_folder_that_is_no_runs_is_refused) {
  fs::create_directories(run_ + "/Documents");
  write(run_ + "/notes.txt", "mine");
  Command no_run = start(train({"--overwrite"}));
  expect_refusal(no_run, 2, {run_, "not the folder of a run", "--overwrite"});
  EXPECT_EQ(files(), (std::set<std::string>{"Documents", "notes.txt"}));
  write(run_ + "/config.json", "{\"editor\": \"vi\"}");
  for (const Arguments& more : {Arguments{"--overwrite"}, Arguments{}}) {
    Command somebodys = start(train(more));
    expect_refusal(somebodys, 2, {"config.json", "not a file that trireme wrote"});
  }
  EXPECT_EQ(read_file(run_ + "/config.json"), "{\"editor\": \"vi\"}");
}

TEST_F(faults_run_folder, resume_with_run_dir_alone_resumes_that_run) {
  train_once();
  Command again = start({"train", "--resume", "--run-dir", run_, "--steps", "9"});
  ASSERT_EQ(again.finish(), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step 6"), std::string::npos) << again.err;
  EXPECT_EQ(latest_step(run_), 9);
  Command both = start({"train", "--resume", "--run-dir", run_, "--overwrite"});
  expect_refusal(both, 2, {"--resume", "--overwrite", "give one of them"});
  // Into another folder it is a new run there, under the same rules.
  Command other = start({"train", "--resume", run_, "--run-dir", "other", "--steps", "11"});
  EXPECT_EQ(other.finish(), 0) << other.err;
  Command once_more = start({"train", "--resume", run_, "--run-dir", "other", "--steps", "12"});
  expect_refusal(once_more, 2, {"other holds a run already"});
}

TEST_F(faults_run_folder, a_finished_run_that_is_resumed_says_so_and_writes_nothing) {
  train_once();
  const auto before = files();
  const std::string metrics = read_file(run_ + "/metrics.jsonl");
  Command again = start({"train", "--resume", run_, "--nproc-per-node", "2", "--set",
                         "train_micro_batch_size_per_gpu=2"});
  EXPECT_EQ(again.finish(), 0) << again.err;
  EXPECT_NE(again.err.find("the run is finished: all 6 steps are done"), std::string::npos)
      << again.err;
  EXPECT_EQ(files(), before);
  EXPECT_EQ(read_file(run_ + "/metrics.jsonl"), metrics);
}

TEST_F(faults_run_folder, a_refused_run_removes_the_folders_that_were_made_for_it) {
  write(folder_ / "gpt.json", kTinyGpt);
  write(folder_ / "corpus.txt", "");  // which only the workers find out
  Command by_name = start({"train", "gpt.json", "--nproc-per-node", "2", "--run-dir", "a/b/run"});
  expect_refusal(by_name, 2, {"corpus.txt", "is empty"});
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  Command by_default = start({"train", "gpt.json"});
  EXPECT_EQ(by_default.finish(), 2) << by_default.err;
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
  // A folder that was there stays, as it was.
  fs::create_directory(run_);
  write(run_ + "/notes.txt", "mine");
  Command there = start({"train", "gpt.json", "--run-dir", run_});
  EXPECT_EQ(there.finish(), 2) << there.err;
  EXPECT_EQ(files(), std::set<std::string>{"notes.txt"});
}

TEST_F(faults_run_folder, a_refused_resume_leaves_the_runs_configuration_as_it_was) {
  train_once({"--nproc-per-node", "2"});
  const std::string config = read_file(run_ + "/config.json");
  Command again = start({"train", "tiny.json", "--resume", run_, "--set", "model.hidden=[9]",
                         "--steps", "9", "--nproc-per-node", "2"});
  expect_refusal(again, 2, {"another model"});
  EXPECT_EQ(read_file(run_ + "/config.json"), config);
  expect_resumable(run_);
}

TEST_F(faults_run_folder, a_folder_that_is_deleted_in_mid_run_ends_it_with_one_sentence) {
  for (const char* every : {"checkpoint.every=10", "checkpoint.every=0"}) {
    Command job(endless_job(folder_ / "tiny.json", run_, {"--set", every}), {kSlowSteps, {}});
    ASSERT_TRUE(job.wait_for("step:")) << job.err;
    fs::remove_all(run_);
    expect_refusal(job, 1, {run_});
    EXPECT_FALSE(fs::exists(run_)) << "it was made again";
  }
}

TEST_F(faults_run_folder, after_a_killed_launcher_the_next_start_goes_on_at_once) {
  Command job(endless_job(folder_ / "tiny.json", run_), {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("saved ")) << job.err;
  job.send(SIGKILL);
  Command next = start({"train", "--resume", run_, "--nproc-per-node", "2", "--steps", "400"});
  EXPECT_EQ(next.finish(), 0) << next.err;
  EXPECT_NE(next.err.find("was left locked by process " + std::to_string(job.pid())),
            std::string::npos)
      << next.err;
  EXPECT_EQ(latest_step(run_), 400);
  EXPECT_EQ(job.finish(), 128 + SIGKILL);
}

TEST_F(faults_run_folder, starts_in_the_same_second_get_a_folder_each) {
  Command one = start({"train", "tiny.json"}), two = start({"train", "tiny.json"}),
          three = start({"train", "tiny.json"});
  for (Command* command : {&one, &two, &three}) EXPECT_EQ(command->finish(), 0) << command->err;
  int runs = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / "runs/tiny")) {
    EXPECT_EQ(steps_in(entry.path() / "metrics.jsonl").size(), 6u);
    ++runs;
  }
  EXPECT_EQ(runs, 3);
}

TEST_F(faults_run_folder, a_folder_of_checkpoints_has_one_run_too) {
  const std::string set = "checkpoint.folder=" + (folder_ / "steps");
  train_once({"--set", set});
  Command other = start({"train", "tiny.json", "--run-dir", "other", "--set", set});
  expect_refusal(other, 2, {"checkpoint.folder", "another run", "step-00000006"});
  EXPECT_FALSE(fs::exists(folder_ / "other"));
  Command theirs = start({"train", "tiny.json", "--run-dir", "other", "--overwrite", "--set", set});
  expect_refusal(theirs, 2, {"checkpoint.folder", "another run"});
  // Its own run finds its steps there, and --overwrite deletes them with it.
  Command resumed = start({"train", "--resume", run_, "--steps", "8"});
  ASSERT_EQ(resumed.finish(), 0) << resumed.err;
  EXPECT_EQ(latest_step(folder_ / "steps"), 8);
  Command again = start(train({"--overwrite", "--steps", "3", "--set", set}));
  ASSERT_EQ(again.finish(), 0) << again.err;
  EXPECT_EQ(step_folders(folder_ / "steps"), std::vector<std::string>{"step-00000003"});
}

TEST_F(faults_run_folder, generate_and_init_find_the_steps_of_a_run_that_keeps_them_elsewhere) {
  write(folder_ / "gpt.json", kTinyGpt);
  write(folder_ / "corpus.txt", std::string(4000, 'x'));
  Command gpt = start({"train", "gpt.json", "--run-dir", run_, "--set", "checkpoint.folder=steps"});
  ASSERT_EQ(gpt.finish(), 0) << gpt.err;
  Command text = start({"generate", "run", "--prompt", "x", "--tokens", "3"});
  EXPECT_EQ(text.finish(), 0) << text.err;
  Command init = start({"train", "gpt.json", "--run-dir", "new", "--set", "checkpoint.init=run"});
  EXPECT_EQ(init.finish(), 0) << init.err;
  EXPECT_NE(init.err.find("steps/step-00000004"), std::string::npos) << init.err;

  fs::remove_all(folder_ / "steps");
  Command no_text = start({"generate", "run"});
  expect_refusal(no_text, 2, {"run has no checkpoint", folder_ / "steps"});
  Command no_init =
      start({"train", "gpt.json", "--run-dir", "newer", "--set", "checkpoint.init=run"});
  expect_refusal(no_init, 2, {"no checkpoint in run", folder_ / "steps"});
}

TEST_F(faults_run_folder, two_runs_into_one_metrics_file_are_refused) {
  const std::string metrics = folder_ / "m.jsonl";
  Command first(endless_job(folder_ / "tiny.json", run_, {"--metrics", metrics}), {kSlowSteps, {}});
  ASSERT_TRUE(first.wait_for("step:")) << first.err;
  Command second = start({"train", "tiny.json", "--run-dir", "other", "--metrics", metrics});
  expect_refusal(second, 2, {metrics, "another run is writing"});
  first.send(SIGTERM);
  EXPECT_EQ(first.finish(), 75) << first.err;
}

TEST_F(faults_run_folder, ranks_of_mpirun_have_one_folder_and_one_configuration) {
  if (!on_path("mpirun")) GTEST_SKIP() << "mpirun is not installed";
  Arguments mpirun{"mpirun", "-np", "2", "--oversubscribe"};
  if (::geteuid() == 0) mpirun.push_back("--allow-run-as-root");
  Arguments words = mpirun;
  for (const auto& word : trireme(train({}))) words.push_back(word);
  Command job(words, {{}, folder_.path()});
  ASSERT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(json_lines(run_ + "/metrics.jsonl").front().at("world"), 2);
  EXPECT_FALSE(fs::exists(run_ + "/run.lock"));
  // Each rank reads its own files: two that differ are refused.
  Arguments differ = mpirun;
  const std::string script =
      trireme_program() +
      " train tiny.json --run-dir other --set training.seed=$OMPI_COMM_WORLD_RANK";
  for (const char* word : {"sh", "-c"}) differ.push_back(word);
  differ.push_back(script);
  Command wrong(differ, {{}, folder_.path()});
  EXPECT_NE(wrong.finish(), 0);
  EXPECT_NE(wrong.err.find("rank 1 has another configuration than rank 0"), std::string::npos)
      << wrong.err;
}

}  // namespace
}  // namespace trireme::testing::run_folder_test
