// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/faults/job.h"

// Two jobs in one folder, on a file system without locks (NFS).
namespace trireme::testing::run_lock_test {
namespace {

namespace fs = std::filesystem;

TEST(faults_run_lock, without_locks_of_two_jobs_that_start_at_once_one_trains_and_one_names_it) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Environment env = kSlowSteps;
  env["TRIREME_FILE_FAULTS"] = "only=/run.lock,lock:ENOLCK";
  Command first(endless_job(config, run), {env, {}}), second(endless_job(config, run), {env, {}});
  Command *owner = nullptr, *refused = nullptr;
  const auto deadline = Deadline::after(seconds(30));
  while (!refused && !deadline.expired())
    for (auto [a, b] : {std::pair{&first, &second}, {&second, &first}}) {
      a->read_for(milliseconds(20));
      if (error_lines(a->err) > 0) refused = a, owner = b;
    }
  ASSERT_NE(refused, nullptr) << first.err << second.err;
  expect_refusal(*refused, 1,
                 {run, "process " + std::to_string(owner->pid()) + " on ", "--run-dir"});
  EXPECT_TRUE(owner->wait_for("step:")) << owner->err;
  // A third, which comes later.
  Command third(endless_job(config, run, {"--take-over"}), {env, {}});
  expect_refusal(third, 1, {run, "process " + std::to_string(owner->pid()) + " on "});
  owner->send(SIGTERM);
  EXPECT_EQ(owner->finish(), 75) << owner->err;
  for (const auto& entry : fs::directory_iterator(run))
    EXPECT_FALSE(entry.path().filename().string().starts_with("run.lock")) << entry.path();
  expect_resumable(run);
}

TEST(faults_run_lock, without_locks_the_folder_of_a_killed_job_is_taken_over) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp), run = folder / "run";
  Environment env = kSlowSteps;
  env["TRIREME_FILE_FAULTS"] = "only=/run.lock,lock:ENOLCK";
  {
    Command first(endless_job(config, run), {env, {}});
    ASSERT_TRUE(eventually([&] {
      first.read_for(milliseconds(20));
      return fs::exists(run + "/latest");
    })) << first.err;
    first.send(SIGKILL);
    first.finish();
  }
  ASSERT_TRUE(fs::exists(run + "/run.lock"));
  const std::string last = std::to_string(latest_step(run) + 3);
  Command second(trireme({"train", "--resume", run, "--nproc-per-node", "2", "--steps", last}),
                 {env, {}});
  EXPECT_EQ(second.finish(), 0) << second.err;
  EXPECT_NE(second.err.find("which is gone"), std::string::npos) << second.err;
  EXPECT_FALSE(fs::exists(run + "/run.lock"));
}

}  // namespace
}  // namespace trireme::testing::run_lock_test
