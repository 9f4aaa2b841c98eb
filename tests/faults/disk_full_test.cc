// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "tests/faults/job.h"
#include "tests/support/small_disk.h"

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

TEST(faults_disk_full, metrics_that_it_does_not_take_are_lost_and_the_run_goes_on) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), disk = folder / "disk";
  SmallDisk small(disk, "size=128k");
  if (!small.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (" << small.why() << "): needs root";
  Command train(
      trireme({"train", config, "--nproc-per-node", "2", "--run-dir", disk + "/run", "--steps",
               "1000", "--set", "checkpoint.at_end=false", "--set", "steps_per_print=1000000"}));
  EXPECT_EQ(train.finish(), 0) << train.err;
  EXPECT_TRUE(holds_all(train.err, {"the run continues, and its metrics are lost until there is "
                                    "room",
                                    " lines of the metrics are lost"}))
      << train.err;
  const auto steps = steps_in(disk + "/run/metrics.jsonl");  // whole lines alone
  EXPECT_GT(steps.size(), 100u);
  EXPECT_LT(steps.size(), 1000u);
}

TEST(faults_disk_full, logs_that_it_does_not_take_are_lost_and_the_program_goes_on) {
  PrivateFolder folder;
  SmallDisk small(folder / "disk", "size=64k");
  if (!small.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (" << small.why() << "): needs root";
  const std::string script =
      "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i of a log "
      "that no such disk can hold; done";
  Command job(trireme({"run", "--nproc-per-node", "2", "--tee", "3", "--log-dir", folder / "disk",
                       "sh", "-c", script}));
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_TRUE(holds_all(job.err, {"cannot write the log ",
                                  "No space left on device; output to "
                                  "the console continues"}))
      << job.err;
  for (const char* rank : {"0", "1"})  // the console has it whole
    EXPECT_NE(job.out.find(std::string(rank) + "]:line 3000 of a log"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing::disk_full_test
