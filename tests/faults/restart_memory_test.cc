// SPDX-License-Identifier: Apache-2.0
// `trireme train --max-restarts` with snapshots in memory: ranks that are started again take the
// newest step from there.
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme::testing::restart_memory_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 20;
const char kFromMemory[] = ", from the memory of the workers before";

const char kDividedGpt[] = R"({
  "model": {"type": "gpt", "layers": 1, "width": 16, "heads": 2, "context": 8},
  "data": {"type": "dummy"},
  "train_micro_batch_size_per_gpu": 2
})";

struct Layout {
  const char* name;
  int ranks;
  const char* config = kTinyMlp;
  Arguments sets = {};
};

class faults_restart_memory : public ::testing::Test {
 protected:
  Arguments words(const std::string& run, const Layout& layout, const Arguments& more) const {
    Arguments all{"train",
                  write(folder_ / "config.json", layout.config),
                  "--run-dir",
                  run,
                  "--nproc-per-node",
                  std::to_string(layout.ranks),
                  "--steps",
                  std::to_string(kSteps),
                  "--max-restarts",
                  "20"};
    for (const char* set :
         {"checkpoint.async=true", "checkpoint.every=5", "training.reproducible=true",
          "steps_per_print=1000000", "optimizer.type=AdamW", R"(optimizer.params={"lr":0.01})"})
      all.insert(all.end(), {"--set", set});
    for (const std::string& set : layout.sets) all.insert(all.end(), {"--set", set});
    all.insert(all.end(), more.begin(), more.end());
    return trireme(all);
  }
  Command start(const std::string& failpoints, const Layout& layout = {"", 2},
                const Arguments& more = {}, Environment environment = {}) const {
    if (!failpoints.empty()) environment["TRIREME_FAILPOINTS"] = failpoints;
    return Command(words(run_, layout, more), {environment, folder_.path()});
  }
  /// Writes down which bytes of steps in the run folder are read.
  Environment watch_reads() const {
    return {{"TRIREME_FILE_FAULTS", "only=" + run_ + "/step-,count=" + (folder_ / "calls")}};
  }
  int reads() const {
    std::ifstream in(folder_ / "calls");
    int n = 0;
    for (std::string line; std::getline(in, line);)
      for (const char* kind : {"\tread\t", "\tpread\t", "\tpread_cached\t", "\tmap\t"})
        n += line.find(kind) != std::string::npos;
    return n;
  }
  void expect_end_of_a_calm_run(const Layout& layout = {"", 2}) const {
    Command calm(words(folder_ / "calm", layout, {}), {{}, folder_.path()});
    ASSERT_EQ(calm.finish(seconds(60)), 0) << calm.err;
    const std::string name = "/" + step_folder_name(kSteps);
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "calm" + name)) {
      if (entry.path().extension() != ".safetensors") continue;
      ++files;
      const std::string file = name + "/" + entry.path().filename().string();
      EXPECT_TRUE(read_file(run_ + file) == read_file(folder_ / "calm" + file)) << file;
    }
    EXPECT_GT(files, 0u);
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
  static std::string from_memory(int step) {
    return "going on after step " + std::to_string(step) + kFromMemory;
  }

  PrivateFolder folder_;
  const std::string run_ = folder_ / "run";
};

class faults_restart_memory_layouts : public faults_restart_memory,
                                      public ::testing::WithParamInterface<Layout> {};

}  // namespace

TEST_P(faults_restart_memory_layouts,
       no_byte_of_a_checkpoint_is_read_and_the_bits_are_a_calm_runs) {
  const Layout& layout = GetParam();
  // Its 8th step in each attempt: steps 8, 13 and 18.
  Command job = start("train.step@8#1=kill", layout, {}, watch_reads());
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  for (int step : {5, 10, 15}) EXPECT_EQ(count(job.err, from_memory(step)), 1) << step << job.err;
  EXPECT_EQ(count(job.err, "start again"), 3) << job.err;
  EXPECT_EQ(reads(), 0);
  EXPECT_TRUE(job.left_nothing());
  expect_end_of_a_calm_run(layout);
}

INSTANTIATE_TEST_SUITE_P(
    each, faults_restart_memory_layouts,
    ::testing::Values(Layout{"replicated", 2},
                      Layout{"zero_1", 2, kTinyMlp, {"zero_optimization.stage=1"}},
                      Layout{"zero_2", 2, kTinyMlp, {"zero_optimization.stage=2"}},
                      Layout{"zero_3", 2, kTinyMlp, {"zero_optimization.stage=3"}},
                      Layout{"tp_2", 2, kDividedGpt, {"parallelism.tp=2"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(faults_restart_memory, without_snapshots_the_disk_is_read) {
  Command job =
      start("train.step@13#1=kill", {"", 2}, {"--set", "checkpoint.async=false"}, watch_reads());
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, "going on after step 10\n"), 1) << job.err;
  EXPECT_GT(reads(), 0);
}

TEST_F(faults_restart_memory, a_rank_killed_inside_of_its_copy_leaves_the_step_before) {
  // The second copy of each attempt: of steps 10, 15 and 20.
  Command job = start("checkpoint.snapshot@2#1=kill", {"", 2}, {}, watch_reads());
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  for (int step : {5, 10, 15}) EXPECT_EQ(count(job.err, from_memory(step)), 1) << step << job.err;
  EXPECT_EQ(reads(), 0);
  expect_end_of_a_calm_run();
}

TEST_F(faults_restart_memory, ranks_that_die_again_and_again_lose_no_step_that_they_copied) {
  Command job = start("train.step@5#0=kill", {"", 2}, {"--set", "checkpoint.every=4"});
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  for (int step = 4; step < kSteps; step += 4)
    EXPECT_EQ(count(job.err, from_memory(step)), 1) << step << job.err;
  expect_end_of_a_calm_run();
}

TEST_F(faults_restart_memory, a_step_that_the_disk_does_not_take_is_gone_on_from) {
  Command job = start("train.step@8#1=kill", {"", 2}, {},
                      {{"TRIREME_FILE_FAULTS", "only=/.tmp-step-00000005,pwrite:ENOSPC"}});
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, from_memory(5)), 1) << job.err;
  EXPECT_EQ(count(job.err, "could not be saved"), 1) << "the launcher's: " << job.err;
  expect_end_of_a_calm_run();
}

TEST_F(faults_restart_memory, a_job_whose_restarts_are_spent_is_resumed_from_what_was_in_memory) {
  Command job = start("train.step@8#1=kill", {"", 2}, {"--max-restarts", "1"});
  ASSERT_EQ(job.finish(seconds(60)), 1) << job.err;
  EXPECT_EQ(latest_step(run_), 10);
  Command rest(words(run_, {"", 2}, {"--resume"}), {{}, folder_.path()});
  ASSERT_EQ(rest.finish(seconds(60)), 0) << rest.err;
  EXPECT_EQ(count(rest.err, "going on after step 10\n"), 1) << rest.err;
  expect_end_of_a_calm_run();
}

TEST_F(faults_restart_memory, an_environment_from_somewhere_else_is_a_warning) {
  const std::string warning = "the step in the memory of the workers before is not taken: rank 0: ";
  Arguments ranks = trireme({"run", "--nproc-per-node", "2", "sh", "-c",
                             "TRIREME_HELD_SNAPSHOTS=2:0,77:1 exec \"$0\" \"$@\""});
  for (const std::string& word : words(run_, {"", 2}, {})) ranks.push_back(word);
  Command job(ranks, {{}, folder_.path()});
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, warning), 1) << job.err;
}

TEST_F(faults_restart_memory, what_was_handed_on_to_a_launcher_is_not_for_its_ranks) {
  Command job = start("", {"", 2}, {}, {{"TRIREME_HELD_SNAPSHOTS", "2:0,77:1"}});
  ASSERT_EQ(job.finish(seconds(60)), 0) << job.err;
  EXPECT_EQ(count(job.err, "is not taken"), 0) << job.err;
}

}  // namespace trireme::testing::restart_memory_test
