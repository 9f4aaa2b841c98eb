// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>

#include "tests/faults/job.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

// Checkpoints that are written while training goes on (checkpoint.async), in jobs that are killed,
// stopped and starved.
namespace trireme::testing::async_faults_test {
namespace {

namespace fs = std::filesystem;

constexpr int kWholeJob = -1;

struct Kill {
  int victim = kWholeJob;  // or a rank
  int after_ms = 0;        // of its first step
};

/// One kill in two is of the whole job; every seed has its own.
std::vector<Kill> kills_of(uint32_t seed, int count, int ranks) {
  std::mt19937 random(seed);
  std::vector<Kill> kills;
  for (int i = 0; i < count; ++i) {
    const bool all = random() % 2 == 0;
    kills.push_back({all ? kWholeJob : static_cast<int>(random() % static_cast<uint32_t>(ranks)),
                     static_cast<int>(random() % 250)});
  }
  return kills;
}

/// scripts/soak asks for more.
int kills_a_layout() {
  const char* soak = std::getenv("TRIREME_SOAK_KILLS");
  return soak ? std::max(1, std::atoi(soak) / 4) : 5;
}

struct Layout {
  const char* name;
  int ranks, every;
  Arguments sets;
};

class faults_async_saves : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }

  Arguments words(const Layout& l, const std::string& run, int64_t steps) const {
    Arguments all = trireme({"train",
                             folder_ / "tiny.json",
                             "--run-dir",
                             run,
                             "--resume",
                             "auto",
                             "--nproc-per-node",
                             std::to_string(l.ranks),
                             "--steps",
                             std::to_string(steps),
                             "--set",
                             "checkpoint.async=true",
                             "--set",
                             "checkpoint.every=" + std::to_string(l.every),
                             "--set",
                             "steps_per_print=1",
                             "--set",
                             "optimizer.type=AdamW",
                             "--set",
                             R"(optimizer.params={"lr":0.01})"});
    for (const std::string& set : l.sets) all.insert(all.end(), {"--set", set});
    return all;
  }
  Arguments endless(const Arguments& more = {}) const {
    Arguments all{"--set", "checkpoint.async=true"};
    all.insert(all.end(), more.begin(), more.end());
    return endless_job(folder_ / "tiny.json", run_, all);
  }

  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

/// All tensors of a step, as bytes.
std::map<std::string, std::string> tensors_of(const std::string& step) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(step))
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename()] = read_file(entry.path());
  return files;
}

class faults_async_saves_killed : public faults_async_saves,
                                  public ::testing::WithParamInterface<Layout> {};

/// A loop of one's own, examples/own_loop/async.cc, which saves every 5 steps. The parameter is the
/// rank that is killed.
class faults_async_saves_of_own_loop : public faults_async_saves,
                                       public ::testing::WithParamInterface<int> {
 protected:
  static inline const std::string kProgram = trireme::testing::build_path("/tests/own_loop_async");
  static constexpr int64_t kSteps = 20;

  void SetUp() override {
    if (!fs::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  }
  static Arguments loop(const std::string& run, const Arguments& more = {}) {
    Arguments words = trireme({"run", "--nproc-per-node", "2"});
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {kProgram, run, std::to_string(kSteps)});
    return words;
  }
  /// Of step 10 the rank has written nothing: it is killed at its first write into its new folder,
  /// behind looking for it and making a file there, and on rank 0 making the folder.
  static CommandOptions killed(int rank) {
    return {{{"TRIREME_FILE_FAULTS", "only=/.tmp-step-00000010-new,rank=" + std::to_string(rank) +
                                         "," + std::to_string(4 - rank) + ":kill-before"}},
            {}};
  }
  void expect_end_of_a_calm_run() const {
    Command calm(loop(folder_ / "calm"));
    ASSERT_EQ(calm.finish(seconds(60)), 0) << calm.err;
    const std::string name = "/" + step_folder_name(kSteps);
    const auto wanted = tensors_of(folder_ / "calm" + name);
    ASSERT_FALSE(wanted.empty());
    EXPECT_TRUE(tensors_of(run_ + name) == wanted);
  }
};

}  // namespace

TEST_P(faults_async_saves_killed, at_random_moments_it_ends_with_the_bits_of_a_calm_run) {
  const Layout& layout = GetParam();
  const auto kills = kills_of(
      18 + static_cast<uint32_t>(layout.ranks) * 100 + static_cast<uint32_t>(layout.sets.size()),
      kills_a_layout(), layout.ranks);
  // More steps than the kills leave time for: at most 17 each.
  const auto steps = static_cast<int64_t>(18 * kills.size());
  const Environment paced{{"TRIREME_FAILPOINTS", "train.step=sleep(15)"}};
  const auto patience = seconds(100 + steps);  // every step may wait for a slow disk
  int killed = 0;
  for (const Kill& kill : kills) {
    Command job(words(layout, run_, steps), {paced, {}});
    ASSERT_TRUE(job.wait_for("step: ")) << job.err;
    job.read_for(milliseconds(kill.after_ms));
    const pid_t victim = kill.victim == kWholeJob ? job.pid() : job.rank(kill.victim);
    if (victim <= 0 || !send_signal(victim, SIGKILL)) break;  // it was faster than that
    const int code = job.finish();
    if (code == 0) break;
    ++killed;
    EXPECT_EQ(code, kill.victim == kWholeJob ? 128 + SIGKILL : 1) << job.err;
    EXPECT_TRUE(job.left_nothing());
    EXPECT_EQ(job.err.find("damaged"), std::string::npos) << job.err;
    if (latest_step(run_) < 0) continue;
    Command verify(trireme({"checkpoint", "verify", run_}));
    EXPECT_EQ(verify.finish(), 0) << verify.out << verify.err;
  }
  EXPECT_GE(killed, static_cast<int>(kills.size()) - 1);
  const int64_t last = latest_step(run_);
  EXPECT_GT(last, 0) << "no save was ever published";
  Command rest(words(layout, run_, steps));
  ASSERT_EQ(rest.finish(patience), 0) << rest.err;
  Command calm(words(layout, folder_ / "calm", steps));
  ASSERT_EQ(calm.finish(patience), 0) << calm.err;

  const std::string name = "/" + step_folder_name(steps);
  const auto got = tensors_of(run_ + name), wanted = tensors_of(folder_ / "calm" + name);
  ASSERT_FALSE(wanted.empty());
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [file, bytes] : wanted)
    EXPECT_TRUE(got.at(file) == bytes) << file << " has other bytes after " << killed << " kills";
  for (const auto& entry : fs::directory_iterator(run_))
    EXPECT_NE(entry.path().filename().string().rfind(".tmp", 0), 0u) << entry.path();
}

INSTANTIATE_TEST_SUITE_P(
    each, faults_async_saves_killed,
    ::testing::Values(
        Layout{"replicated", 2, 1, {}}, Layout{"zero_1", 2, 2, {"zero_optimization.stage=1"}},
        Layout{"zero_3", 3, 1, {"zero_optimization.stage=3", "checkpoint.keep=1"}},
        Layout{"local_sgd",
               2,
               2,
               {"averaging.type=local_sgd", "averaging.period=3", "checkpoint.keep_every=20"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(faults_async_saves, a_rank_killed_while_a_step_is_written_ends_the_job_at_once) {
  for (int rank : {0, 1}) {
    fs::remove_all(run_);
    // Rank 1 writes slowly, and rank 0's thread waits for its files most of the time.
    Command job(
        endless({"--set", "zero_optimization.stage=2"}),
        {{{"TRIREME_FAILPOINTS", "train.step=sleep(5),checkpoint.write#1=sleep(300)"}}, {}});
    ASSERT_TRUE(job.wait_for("saved ")) << job.err;
    ASSERT_TRUE(eventually([&] {
      job.read_for(milliseconds(20));
      for (const auto& entry : fs::directory_iterator(run_))
        if (entry.path().filename().string().rfind(".tmp-step", 0) == 0) return true;
      return false;
    })) << job.err;
    const auto start = Clock::now();
    ASSERT_TRUE(send_signal(job.rank(rank), SIGKILL));
    EXPECT_EQ(job.finish(), 1) << job.err;
    EXPECT_LT(seconds_since(start), 5 * kSlack);
    EXPECT_TRUE(job.left_nothing());
    expect_resumable(run_);
  }
}

TEST_F(faults_async_saves, a_full_disk_is_one_warning_a_save_and_the_run_goes_on) {
  Command job(words({"", 2, 2, {}}, run_, 6),
              {{{"TRIREME_FILE_FAULTS", "only=/.tmp-step-00000002,rank=1,pwrite:ENOSPC"}}, {}});
  ASSERT_EQ(job.finish(), 0) << job.err;
  EXPECT_TRUE(holds_all(job.err, {"warning", "checkpoint of step 2 was not saved: rank 1 on ",
                                  "cannot write " + run_ + "/.tmp-step-00000002",
                                  "No space left on device", "The run goes on"}));
  const size_t first = job.err.find("checkpoint of step 2 was not saved");
  EXPECT_EQ(job.err.find("checkpoint of step 2 was not saved", first + 1), std::string::npos)
      << job.err;
  EXPECT_EQ(step_folders(run_), (std::vector<std::string>{"step-00000004", "step-00000006"}));
}

TEST_F(faults_async_saves, with_on_error_stop_a_full_disk_ends_the_job_with_one_sentence) {
  Command job(words({"", 2, 2, {"checkpoint.on_error=stop"}}, run_, 100000),
              {{{"TRIREME_FAILPOINTS", "train.step=sleep(5)"},
                {"TRIREME_FILE_FAULTS", "only=/.tmp-step-00000004,pwrite:ENOSPC"}},
               {}});
  expect_refusal(job, 1,
                 {"checkpoint of step 4 was not saved", "rank 0 on ", "No space left on device"});
  EXPECT_TRUE(holds_all(job.err, {"step 4 of " + run_ + " was in the memory of the workers",
                                  "could not be saved", "Earlier checkpoints are as they were"}));
  EXPECT_EQ(latest_step(run_), 2);
  expect_resumable(run_);
}

TEST_F(faults_async_saves, a_signal_while_a_step_is_written_waits_for_it_and_saves_its_own) {
  for (const auto& [signal, code] : {std::pair{SIGTERM, 75}, {SIGINT, 130}}) {
    fs::remove_all(run_);
    Command job(
        endless({"--set", "checkpoint.keep=9"}),
        {{{"TRIREME_FAILPOINTS", "train.step=sleep(5),checkpoint.before_publish@2=sleep(1500)"}},
         {}});
    ASSERT_TRUE(job.wait_for("step: 22/")) << job.err;  // step 20 is being written
    EXPECT_EQ(latest_step(run_), 10);
    job.send(signal);
    EXPECT_EQ(job.finish(), code) << job.err;
    EXPECT_TRUE(fs::exists(run_ + "/step-00000020"));
    EXPECT_GE(latest_step(run_), 22);
    EXPECT_EQ(error_lines(job.err), 0) << job.err;
    EXPECT_TRUE(job.left_nothing());
    expect_resumable(run_);
  }
}

TEST_F(faults_async_saves, a_second_ctrl_c_does_not_wait_for_the_disk) {
  Command job(
      endless(),
      {{{"TRIREME_FAILPOINTS", "train.step=sleep(5),checkpoint.before_publish@2=sleep(60000)"}},
       {}});
  ASSERT_TRUE(job.wait_for("step: 22/")) << job.err;
  job.send(SIGINT);
  job.read_for(milliseconds(300));
  const auto start = Clock::now();
  job.send(SIGINT);
  EXPECT_EQ(job.finish(), 130) << job.err;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_EQ(latest_step(run_), 20) << "the launcher has saved what they had in memory";
  EXPECT_TRUE(job.left_nothing());
  expect_resumable(run_);
}

// Between the snapshot and the rename that would show the step.
TEST_F(faults_async_saves, workers_that_are_killed_leave_their_snapshot_as_a_step) {
  const int64_t steps = 6;
  Command calm(words({"", 2, 2, {"zero_optimization.stage=2"}}, folder_ / "calm", steps));
  ASSERT_EQ(calm.finish(seconds(60)), 0) << calm.err;
  for (const bool all : {false, true}) {
    fs::remove_all(run_);
    const char* at = all ? "checkpoint.before_publish@2#0=sleep(60000),train.step=sleep(20)"
                         : "checkpoint.before_publish@2#0=kill";
    Command job(words({"", 2, 2, {"zero_optimization.stage=2"}}, run_, all ? 100000 : steps),
                {{{"TRIREME_FAILPOINTS", at}}, {}});
    if (all) {
      ASSERT_TRUE(job.wait_for("step:  5/")) << job.err;  // step 4 is in memory
      EXPECT_EQ(latest_step(run_), 2);
      const std::array<pid_t, 2> ranks{job.rank(0), job.rank(1)};
      for (pid_t rank : ranks) ASSERT_TRUE(rank > 0 && send_signal(rank, SIGKILL));
    }
    EXPECT_EQ(job.finish(), 1) << job.err;
    EXPECT_TRUE(job.left_nothing());
    EXPECT_TRUE(holds_all(job.err, {"step 4 of " + run_ + " was only in the memory of the workers",
                                    "it is saved in " + run_ + "/step-00000004"}));
    EXPECT_EQ(latest_step(run_), 4);
    Command verify(trireme({"checkpoint", "verify", run_}));
    EXPECT_EQ(verify.finish(), 0) << verify.out << verify.err;
    Command rest(words({"", 2, 2, {"zero_optimization.stage=2"}}, run_, steps));
    ASSERT_EQ(rest.finish(seconds(60)), 0) << rest.err;
    EXPECT_TRUE(holds_all(rest.err, {"going on after step 4"}));
    const std::string name = "/" + step_folder_name(steps);
    EXPECT_TRUE(tensors_of(run_ + name) == tensors_of(folder_ / "calm" + name));
  }
}

// As where memory runs out: the kernel kills one process after another.
TEST_F(faults_async_saves, a_snapshot_is_saved_by_a_launcher_whose_keeper_is_gone) {
  Command job(
      words({"", 2, 2, {}}, run_, 100000),
      {{{"TRIREME_FAILPOINTS", "checkpoint.before_publish@2#0=sleep(60000),train.step=sleep(20)"}},
       {}});
  ASSERT_TRUE(job.wait_for("step:  5/")) << job.err;  // step 4 is in memory
  const std::array<pid_t, 2> ranks{job.rank(0), job.rank(1)};
  int keepers = 0;
  for (pid_t pid : job.living())
    if (read_file("/proc/" + std::to_string(pid) + "/comm") == "trireme-keeper\n")
      keepers += send_signal(pid, SIGKILL);
  ASSERT_EQ(keepers, 1);
  for (pid_t rank : ranks) ASSERT_TRUE(rank > 0 && send_signal(rank, SIGKILL));
  EXPECT_EQ(job.finish(), 1) << job.err;
  EXPECT_TRUE(job.left_nothing());
  EXPECT_TRUE(holds_all(job.err, {"keeper process", "it is saved in " + run_ + "/step-00000004"}));
  EXPECT_EQ(latest_step(run_), 4);
  expect_resumable(run_);
}

TEST_F(faults_async_saves, with_their_launcher_the_snapshot_is_gone_and_the_step_before_is_good) {
  Command job(
      words({"", 2, 2, {}}, run_, 100000),
      {{{"TRIREME_FAILPOINTS", "checkpoint.before_publish@2#0=sleep(60000),train.step=sleep(20)"}},
       {}});
  ASSERT_TRUE(job.wait_for("step:  5/")) << job.err;
  ASSERT_TRUE(send_signal(job.pid(), SIGKILL));
  EXPECT_EQ(job.finish(), 128 + SIGKILL) << job.err;
  EXPECT_TRUE(job.left_nothing());
  EXPECT_EQ(step_folders(run_), std::vector<std::string>{"step-00000002"});
  expect_resumable(run_);
}

TEST_P(faults_async_saves_of_own_loop, its_next_start_goes_on_from_what_a_killed_rank_had_copied) {
  Command job(loop(run_), killed(GetParam()));
  EXPECT_EQ(job.finish(seconds(60)), 1) << job.err;
  EXPECT_TRUE(job.left_nothing());
  EXPECT_TRUE(holds_all(job.err, {"step 10 of " + run_ + " was only in the memory of the workers",
                                  "it is saved in " + run_ + "/step-00000010", "SIGKILL"}));
  EXPECT_EQ(latest_step(run_), 10);
  Command verify(trireme({"checkpoint", "verify", run_}));
  EXPECT_EQ(verify.finish(), 0) << verify.out << verify.err;
  Command rest(loop(run_));
  ASSERT_EQ(rest.finish(seconds(60)), 0) << rest.err;
  EXPECT_TRUE(holds_all(rest.out, {"resumed at step 10\n"}));
  expect_end_of_a_calm_run();
}

TEST_P(faults_async_saves_of_own_loop, a_restart_goes_on_from_it_too) {
  Command job(loop(run_, {"--max-restarts", "1"}), killed(GetParam()));
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_TRUE(job.left_nothing());
  EXPECT_TRUE(holds_all(job.err, {"it is saved in " + run_ + "/step-00000010"}));
  EXPECT_TRUE(holds_all(job.out, {"resumed at step 10\n"}));
  expect_end_of_a_calm_run();
}

INSTANTIATE_TEST_SUITE_P(rank, faults_async_saves_of_own_loop, ::testing::Values(0, 1),
                         ::testing::PrintToStringParamName());

TEST_F(faults_async_saves, what_does_not_fit_into_memory_is_refused_before_ranks_start) {
  Command job(
      trireme({"train", folder_ / "tiny.json", "--run-dir", run_, "--set", "checkpoint.every=1",
               "--set", "checkpoint.async=true", "--set", "model.hidden=[1000000,1000000]"}));
  expect_refusal(job, 1, {"needs", "checkpoint.async=false"});
}

}  // namespace trireme::testing::async_faults_test
