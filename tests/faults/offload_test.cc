// SPDX-License-Identifier: Apache-2.0
// `trireme train` with states and parameters on disk: models larger than the memory there is, and
// disks that cannot be used.
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include "tests/faults/job.h"
#include "tests/support/memory_limit.h"

namespace trireme::testing::offload_test {
namespace {

Arguments all_on_disk(const std::string& folder) {
  Arguments sets;
  for (const std::string& set : {std::string("zero_optimization.stage=3"),
                                 std::string("zero_optimization.offload_optimizer.device=nvme"),
                                 "zero_optimization.offload_optimizer.nvme_path=" + folder,
                                 std::string("zero_optimization.sub_group_size=500000"),
                                 std::string("zero_optimization.offload_optimizer.buffer_count=3"),
                                 std::string("zero_optimization.offload_param.device=nvme"),
                                 "zero_optimization.offload_param.nvme_path=" + folder,
                                 std::string("zero_optimization.offload_param.buffer_count=2"),
                                 std::string("zero_optimization.stage3_prefetch_bucket_size=0")})
    sets.insert(sets.end(), {"--set", set});
  return sets;
}

// ── a disk that cannot be used ──────────────────────────────────────────────────────────────────

class faults_offload : public ::testing::Test {
 protected:
  void SetUp() override { write(folder_ / "tiny.json", kTinyMlp); }
  void expect_train(const std::string& disk, int code, const std::vector<std::string>& words,
                    const Environment& env = {}) {
    Arguments all = trireme({"train", "tiny.json", "--nproc-per-node", "2", "--run-dir", "run"});
    const Arguments sets = all_on_disk(disk);
    all.insert(all.end(), sets.begin(), sets.end());
    Command train(all, {env, folder_.path()});
    expect_refusal(train, code, words);
  }
  PrivateFolder folder_;
};

TEST_F(faults_offload, a_folder_that_is_not_there_is_one_sentence) {
  expect_train(folder_ / "absent", 1,
               {"offload folder " + folder_ / "absent", "No such file or directory"});
}

TEST_F(faults_offload, a_folder_that_is_a_file_is_one_sentence) {
  expect_train(folder_ / "tiny.json", 1, {folder_ / "tiny.json", "is not a folder"});
}

TEST_F(faults_offload, a_disk_without_room_says_how_much_is_needed_and_free) {
  expect_train(folder_.path(), 1,
               {"offload needs ", " bytes in " + folder_.path(), "free some space"},
               {{"TRIREME_FAILPOINTS", "offload.reserve=error(28)"}});
}

TEST_F(faults_offload, a_disk_that_fails_in_a_step_stops_the_job) {
  expect_train(folder_.path(), 1, {"the offload file in " + folder_.path(), "Input/output error"},
               {{"TRIREME_FAILPOINTS", "offload.read@9=error(5)"}});
}

// ── less memory than the states need ────────────────────────────────────────────────────────────

// 32 M parameters: 16 bytes of each in a plain run, 483 MiB, of which 121 (gradients) stay in
// memory here. Measured with the processes themselves: 674 MiB, and 471 (458 where 480 are
// allowed).
const char kLargeGpt[] = R"({
  "model": {"type": "gpt", "layers": 10, "width": 512, "heads": 4, "context": 8},
  "data": {"type": "corpus", "paths": ["corpus.txt"], "validation_fraction": 0.2},
  "train_batch_size": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "training": {"steps": 2, "eval_batches": 1},
  "checkpoint": {"at_end": false}
})";
constexpr size_t kLimit = size_t{560} << 20;

bool on_tmpfs(const std::string& path) {
  struct statfs s {};
  return ::statfs(path.c_str(), &s) == 0 && s.f_type == TMPFS_MAGIC;
}

/// The losses of the run's steps; in `limit`'s cgroup, where there is one.
std::vector<double> losses(const PrivateFolder& folder, const std::string& run, int ranks,
                           const Arguments& sets, const MemoryLimit* limit, std::string* said) {
  Arguments all = trireme({"train", "large.json", "--nproc-per-node", std::to_string(ranks),
                           "--run-dir", run, "--set", "steps_per_print=1"});
  all.insert(all.end(), sets.begin(), sets.end());
  if (limit) {
    Arguments entered{"sh", "-c", "echo $$ > " + limit->procs() + " && exec \"$@\"", "sh"};
    entered.insert(entered.end(), all.begin(), all.end());
    all = entered;
  }
  Command train(all, {{}, folder.path()});
  const int code = train.finish(std::chrono::seconds(100));
  *said = train.err;
  if (code != 0) return {};
  std::vector<double> found;
  for (const auto& line : json_lines(folder / run + "/metrics.jsonl"))
    if (!line.contains("event")) found.push_back(line.at("loss"));
  return found;
}

TEST(faults_offload_memory, a_gpt_whose_states_exceed_the_limit_trains_with_them_on_disk) {
  PrivateFolder folder;
  if (on_tmpfs(folder.path()))
    GTEST_SKIP() << folder.path() << " is in memory: set TMPDIR to a folder on a disk";
  MemoryLimit limit(kLimit);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  write(folder / "large.json", kLargeGpt);
  write(folder / "corpus.txt", std::string(300, 'a') + std::string(300, 'b'));
  std::string said;
  const auto unlimited = losses(folder, "unlimited", 1, {}, nullptr, &said);
  ASSERT_EQ(unlimited.size(), 2u) << said;
  EXPECT_TRUE(losses(folder, "plain", 1, {}, &limit, &said).empty()) << "the limit is too high";
  EXPECT_NE(said.find("SIGKILL"), std::string::npos) << said;
  const auto got = losses(folder, "disk", 2, all_on_disk(folder.path()), &limit, &said);
  ASSERT_EQ(got.size(), 2u) << said;
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i], unlimited[i], 1e-4);
}

}  // namespace
}  // namespace trireme::testing::offload_test
