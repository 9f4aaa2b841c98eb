// SPDX-License-Identifier: Apache-2.0
// --max-restarts: what starts again, what does not, and what a user sees of it.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/job_process.h"
#include "trireme/base/file.h"

namespace trireme::launch::restart_test {
namespace {

using std::chrono::seconds;

/// Rank 1 fails in the attempts before this one.
std::string good_from(int attempt, const std::string& failure = "exit 3") {
  return "if [ $RANK = 1 ]; then echo attempt $TORCHELASTIC_RESTART_COUNT of "
         "$TORCHELASTIC_MAX_RESTARTS; if [ $TORCHELASTIC_RESTART_COUNT -lt " +
         std::to_string(attempt) + " ]; then " + failure + "; fi; fi";
}

TEST(launch_restart, all_workers_start_again_until_an_attempt_ends_well) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=3"}, good_from(2));
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  EXPECT_EQ(job.out_text, "attempt 0 of 3\nattempt 1 of 3\nattempt 2 of 3\n");
  EXPECT_EQ(JobProcess::count(job.err_text, "FAILED"), 0) << job.err_text;
  for (const char* line : {") failed with exit code 3: all workers start again (restart 1 of 3)\n",
                           ") failed with exit code 3: all workers start again (restart 2 of 3)\n"})
    EXPECT_EQ(JobProcess::count(job.err_text, line), 1) << job.err_text;
}

TEST(launch_restart, the_last_attempt_is_the_one_that_is_reported) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=2"}, good_from(9));
  EXPECT_EQ(job.wait(), 1) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "attempt "), 3) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "/bin/sh FAILED"), 1) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "start again"), 2) << job.err_text;
}

TEST(launch_restart, with_a_window_older_restarts_are_forgotten) {
  // Each attempt lives for longer than the window.
  JobProcess job({"--nproc-per-node=2", "--max-restarts=1", "--restart-window=1"},
                 good_from(3, "sleep 1.2; exit 3"));
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "attempt "), 4) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "start again (restart 3; 1 of 1 within 1 s)"), 1)
      << job.err_text;
}

TEST(launch_restart, failures_within_the_window_end_the_job) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=2", "--restart-window=600"}, good_from(9));
  EXPECT_EQ(job.wait(), 1) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "attempt "), 3) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "/bin/sh FAILED"), 1) << job.err_text;
}

TEST(launch_restart, without_the_flag_nothing_starts_again) {
  JobProcess job({"--nproc-per-node=2"}, good_from(1));
  EXPECT_EQ(job.wait(), 1) << job.err_text;
  EXPECT_EQ(job.out_text, "attempt 0 of 0\n");
}

TEST(launch_restart, a_worker_that_was_killed_starts_again_and_the_signal_is_named) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=1"}, good_from(1, "kill -KILL $$"));
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, ") was ended by SIGKILL"), 1) << job.err_text;
}

TEST(launch_restart, the_cause_and_not_its_consequence_is_said) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=1"},
                 R"(if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi
                    if [ $RANK = 0 ]; then
                      echo '{"message": {"message": "PeerLost: rank 1 is gone", "extraInfo": {}}}' \
                        > $TORCHELASTIC_ERROR_FILE
                      exit 1
                    fi
                    sleep 0.1; kill -SEGV $$)");
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "rank 1 (pid "), 1) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "PeerLost"), 0) << job.err_text;
}

TEST(launch_restart, what_somebody_asked_to_stop_does_not_start_again) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=3"},
                 "trap 'exit 1' INT; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n", 2));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "ready\n"), 2);
}

TEST(launch_restart, a_second_attempt_can_be_stopped_too) {
  JobProcess job({"--nproc-per-node=1", "--max-restarts=3"},
                 "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 1; fi; trap 'exit 130' INT; "
                 "echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n"));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.err_text;
  EXPECT_EQ(job.out_text, "ready\n");
}

TEST(launch_restart, workers_that_saved_and_left_are_not_started_again) {
  JobProcess job({"--nproc-per-node=2", "--max-restarts=3"}, "echo saved; exit 75");
  EXPECT_EQ(job.wait(), 75) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "saved\n"), 2);
}

TEST(launch_restart, what_every_attempt_would_meet_ends_the_job) {
  JobProcess job(
      {"--nproc-per-node=1", "--max-restarts=3"},
      R"(echo try; echo '{"message": {"message": "UsageError: no such key", "extraInfo": {}}}' \
           > $TORCHELASTIC_ERROR_FILE; exit 2)");
  EXPECT_EQ(job.wait(), 1) << job.err_text;
  EXPECT_EQ(job.out_text, "try\n");
  EXPECT_NE(job.err_text.find("no such key"), std::string::npos) << job.err_text;
}

TEST(launch_restart, the_same_failure_of_the_same_step_is_not_tried_a_third_time) {
  const auto fails = [](const std::string& step) {
    return R"(echo try; echo "{\"message\": {\"message\": \"NumericError: no number in step )" +
           step + R"(\", \"extraInfo\": {}}}" > $TORCHELASTIC_ERROR_FILE; exit 1)";
  };
  JobProcess same({"--nproc-per-node=1", "--max-restarts=5"}, fails("7"));
  EXPECT_EQ(same.wait(), 1) << same.err_text;
  EXPECT_EQ(JobProcess::count(same.out_text, "try\n"), 2) << same.err_text;
  EXPECT_EQ(JobProcess::count(same.err_text, "the same step for the second time"), 1);
  EXPECT_EQ(JobProcess::count(same.err_text, "FAILED"), 1) << same.err_text;
  JobProcess others({"--nproc-per-node=1", "--max-restarts=3"},
                    fails("$((7 + $TORCHELASTIC_RESTART_COUNT))"));
  EXPECT_EQ(others.wait(), 1) << others.err_text;
  EXPECT_EQ(JobProcess::count(others.out_text, "try\n"), 4) << others.err_text;
}

TEST(launch_restart, what_an_attempt_left_behind_is_gone_before_the_next) {
  JobProcess job({"--nproc-per-node=1", "--max-restarts=1"},
                 R"(if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
                      setsid sleep 1000 & echo $! > $TRIREME_SECRET_FILE.child
                      exit 1
                    fi
                    kill -0 $(cat $TRIREME_SECRET_FILE.child) 2>/dev/null && echo there || echo gone)");
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  EXPECT_EQ(job.out_text, "gone\n");
}

TEST(launch_restart, every_attempt_has_its_logs_and_its_error_files) {
  const PrivateFolder folder;
  JobProcess job({"--nproc-per-node=2", "--max-restarts=1", "--log-dir=" + folder.path(),
                  "--rdzv-id=job", "--redirects=1"},
                 good_from(1) + "; test ! -e $TORCHELASTIC_ERROR_FILE && echo fresh");
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  std::string logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    logs = entry.path().string();
  EXPECT_EQ(read_file(logs + "/attempt_0/1/stdout.log"), "attempt 0 of 1\n");
  EXPECT_EQ(read_file(logs + "/attempt_1/1/stdout.log"), "attempt 1 of 1\nfresh\n");
}

}  // namespace
}  // namespace trireme::launch::restart_test
