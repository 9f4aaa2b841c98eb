// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"

// `trireme run PROGRAM`: any program as ranks, with torchrun's environment.
namespace trireme::testing::run_test {
namespace {

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(faults_run, workers_get_the_environment_of_torchrun) {
  Command run(
      trireme({"run", "--nproc-per-node", "2", "sh", "-c",
               "echo \"rank $RANK local $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE at "
               "$MASTER_ADDR:$MASTER_PORT group $GROUP_RANK run $TORCHELASTIC_RUN_ID threads "
               "$OMP_NUM_THREADS store $TRIREME_STORE\""}));
  ASSERT_EQ(run.finish(), 0) << run.err;
  for (int rank : {0, 1}) {
    const std::string r = std::to_string(rank);
    EXPECT_EQ(count(run.out, "rank " + r + " local " + r + " of 2 2 at 127.0.0.1:"), 1) << run.out;
  }
  EXPECT_EQ(count(run.out, " group 0 run none threads "), 2) << run.out;
  EXPECT_EQ(count(run.out, " store 127.0.0.1:"), 2) << run.out;
  EXPECT_EQ(run.err, "");
  EXPECT_TRUE(run.left_nothing());
}

// Its ranks would show their progress to the outer launcher, as if they were its own.
TEST(faults_run, a_job_within_a_worker_of_another_says_nothing_to_the_outer_launcher) {
  const Arguments inner =
      trireme({"run", "--nproc-per-node", "1", "--hang-timeout", "off", "sh", "-c",
               "echo \"inner $TRIREME_SNAPSHOTS held [$TRIREME_HELD_SNAPSHOTS] "
               "events [$TRIREME_EVENTS] flight [$TRIREME_JOB_FLIGHT_DIR]\""});
  PrivateFolder logs;
  Arguments words{"run",
                  "--nproc-per-node",
                  "1",
                  "--log-dir",
                  logs.path(),
                  "sh",
                  "-c",
                  "echo \"outer $TRIREME_SNAPSHOTS held [$TRIREME_HELD_SNAPSHOTS]\"; "
                  "test -n \"$TRIREME_EVENTS\" && test -n \"$TRIREME_JOB_FLIGHT_DIR\" && "
                  "TRIREME_HELD_SNAPSHOTS=9:0 \"$@\"",
                  "-"};
  words.insert(words.end(), inner.begin(), inner.end());
  Command run(trireme(words), {{{"TRIREME_HELD_SNAPSHOTS", "12:0"}}, {}});
  ASSERT_EQ(run.finish(), 0) << run.out << run.err;
  EXPECT_EQ(count(run.out, "/snapshots held []\n"), 1) << run.out;
  EXPECT_EQ(count(run.out, "/snapshots held [] events [] flight []\n"), 1) << run.out;
  const auto path = [&](const std::string& who) {
    const auto at = run.out.find(who + " ");
    return at == std::string::npos ? "" : run.out.substr(at + 6, run.out.find(" held", at) - at);
  };
  EXPECT_NE(path("outer"), path("inner"));
}

TEST(faults_run, flags_are_understood_as_torchrun_writes_them) {
  Command run(trireme({"run", "--standalone", "--nproc_per_node=2", "--tee=3", "--log-dir", "logs",
                       "sh", "-c", "echo hello; echo $1", "-", "--steps"}));
  ASSERT_EQ(run.finish(), 0) << run.err;
  for (const char* line : {"[default0]:hello\n", "[default1]:hello\n", "[default1]:--steps\n"})
    EXPECT_EQ(count(run.out, line), 1) << run.out;
}

TEST(faults_run, a_failing_rank_stops_the_others_and_is_named) {
  const auto start = Clock::now();
  Command run(trireme({"run", "--nproc-per-node", "3", "sh", "-c",
                       "if [ $RANK = 1 ]; then exit 7; fi; while :; do sleep 0.1; done"}));
  EXPECT_EQ(run.finish(), 1);
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  const auto root = run.err.find("Root Cause");
  ASSERT_NE(root, std::string::npos) << run.err;
  EXPECT_TRUE(holds_all(run.err.substr(root), {"rank      : 1", "exitcode  : 7"}));
  EXPECT_TRUE(run.left_nothing());
}

TEST(faults_run, grandchildren_end_with_the_job) {
  Command run(trireme({"run", "--nproc-per-node", "2", "sh", "-c",
                       "setsid sh -c 'while :; do sleep 0.1; done' & echo started; wait"}));
  ASSERT_TRUE(run.wait_for("started"));
  run.send(SIGKILL);
  EXPECT_EQ(run.finish(), 128 + SIGKILL);
  EXPECT_TRUE(run.left_nothing()) << run.living().size() << " processes are left";
}

TEST(faults_run, the_dry_run_starts_nothing) {
  Command run(trireme({"run", "--nproc-per-node", "2", "--dry-run", "false"}));
  ASSERT_EQ(run.finish(), 0) << run.err;
  const auto plan = nlohmann::json::parse(run.out);
  EXPECT_TRUE(plan.is_object());
  EXPECT_TRUE(holds_all(run.out, {"\"RANK\"", "\"1\""}));
}

TEST(faults_run, a_training_rank_started_by_run_is_the_same_as_by_train) {
  PrivateFolder folder;
  const std::string config = write(folder / "tiny.json", kTinyMlp);
  Command train(trireme({"train", config, "--nproc-per-node", "2", "--run-dir", folder / "a"}));
  ASSERT_EQ(train.finish(), 0) << train.err;
  std::filesystem::create_directory(folder / "b");
  Command run(trireme({"run", "--nproc-per-node", "2", worker_program(), "train", "--config",
                       folder / "a/config.json", "--run-dir", folder / "b"}));
  ASSERT_EQ(run.finish(), 0) << run.err;
  EXPECT_EQ(read_file(folder / "a/step-00000006/model.safetensors"),
            read_file(folder / "b/step-00000006/model.safetensors"));
}

}  // namespace
}  // namespace trireme::testing::run_test
