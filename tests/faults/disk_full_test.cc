// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "tests/faults/job.h"

// The disk is full when a checkpoint is written.
namespace trireme::testing::disk_full_test {
namespace {

// 'No half-written step': whatever bears a step's name is whole, and `latest` names it.
void expect_only_whole_steps(const std::string& run, const std::vector<std::string>& expected) {
  EXPECT_EQ(step_folders(run), expected);
  for (const auto& step : step_folders(run))
    for (const char* file : {"model.safetensors", "state.safetensors", "trireme.index.json"})
      EXPECT_TRUE(std::filesystem::exists(run + "/" + step + "/" + file)) << step << "/" << file;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
}

TEST(faults_disk_full, the_system_says_ENOSPC) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command first(trireme({"train", config, "--nproc-per-node", "2", "--run-dir", run}));
  ASSERT_EQ(first.finish(), 0) << first.err;
  Command second(trireme({"train", "--resume", run, "--nproc-per-node", "2", "--steps", "20"}),
                 {{{"TRIREME_FAILPOINTS", "checkpoint.write@2=error(28)"}}, {}});
  expect_refusal(second, 1,
                 {"checkpoint of step 20 was not saved", "No space left on device",
                  "Earlier checkpoints are as they were", "free some space"});
  expect_only_whole_steps(run, {"step-00000006"});
  EXPECT_EQ(latest_step(run), 6);
  // The metrics know steps after the checkpoint; the run that goes on says them again.
  expect_resumable(run);
}

TEST(faults_disk_full,
     a_disk_that_fails_at_one_file_call_ends_the_job_and_the_run_goes_on_after_it) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Command first(trireme({"train", config, "--nproc-per-node", "2", "--run-dir", run}));
  ASSERT_EQ(first.finish(), 0) << first.err;
  Command second(trireme({"train", "--resume", run, "--nproc-per-node", "2", "--steps", "20"}),
                 {{{"TRIREME_FILE_FAULTS", "only=/.tmp-step-00000020,rank=0,fsync:EIO"}}, {}});
  expect_refusal(
      second, 1,
      {"checkpoint of step 20 was not saved", "cannot sync " + run + "/.tmp-step-00000020",
       "Input/output error", "Earlier checkpoints are as they were"});
  expect_only_whole_steps(run, {"step-00000006"});
  EXPECT_EQ(latest_step(run), 6);
  expect_resumable(run);
}

/// A file system of its own, gone with the object.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const std::string& options) : path_(path) {
    std::filesystem::create_directory(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) why_ = std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::string& why() const { return why_; }

 private:
  std::string path_, why_;
  bool mounted_ = false;
};

TEST(faults_disk_full, a_small_file_system_fills) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), disk = folder / "disk",
                    run = disk + "/run";
  SmallDisk small(disk, "size=2m");
  if (!small.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (" << small.why() << "): needs root";
  // One checkpoint is 1.6 MB, so the second does not fit.
  Command train(trireme({"train", config, "--nproc-per-node", "2", "--run-dir", run, "--set",
                         "model.hidden=[8000]", "--set", "checkpoint.every=3"}));
  expect_refusal(train, 1,
                 {"checkpoint of step 6 was not saved", "No space left on device", "the disk has ",
                  "free some space"});
  expect_only_whole_steps(run, {"step-00000003"});
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);  // more space
  Command again(trireme({"train", "--resume", run, "--nproc-per-node", "2"}));
  EXPECT_EQ(again.finish(), 0) << again.err;
  expect_only_whole_steps(run, {"step-00000003", "step-00000006"});
}

}  // namespace
}  // namespace trireme::testing::disk_full_test
