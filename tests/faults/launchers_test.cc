// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/faults/job.h"
#include "tests/faults/slurm.h"
#include "tests/support/paths.h"

// Ranks that somebody else's launcher starts: mpirun, srun, or two shells with torchrun's
// variables.
namespace trireme::testing::launchers_test {
namespace {

class faults_launchers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(run_);
    write(folder_ / "tiny.json", kTinyMlp);
  }
  Arguments ranks(Arguments launcher) const {
    launcher.insert(launcher.end(), {worker_program(), "train", "--config", folder_ / "tiny.json",
                                     "--run-dir", run_});
    return launcher;
  }
  void expect_two_ranks_trained() const {
    const auto lines = json_lines(run_ + "/metrics.jsonl");
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.front().at("world"), 2);
    EXPECT_EQ(lines.back().at("steps"), 6);
    EXPECT_EQ(latest_step(run_), 6);
  }
  Arguments mpirun() const {
    Arguments words{"mpirun", "-np", "2", "--oversubscribe"};
    if (::geteuid() == 0) words.push_back("--allow-run-as-root");
    return words;
  }

  PrivateFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(faults_launchers, mpirun_starts_ranks) {
  if (!on_path("mpirun")) GTEST_SKIP() << "mpirun is not installed";
  Command job(ranks(mpirun()));
  ASSERT_EQ(job.finish(), 0) << job.err;
  expect_two_ranks_trained();
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(faults_launchers, MPICHs_mpirun_starts_ranks) {
  if (!on_path("mpirun.mpich")) GTEST_SKIP() << "MPICH is not installed";
  Command job(ranks({"mpirun.mpich", "-n", "2"}));
  ASSERT_EQ(job.finish(), 0) << job.err;
  expect_two_ranks_trained();
  EXPECT_TRUE(job.left_nothing());
}

TEST_F(faults_launchers, mpirun_forwards_SIGTERM_and_the_ranks_save) {
  if (!on_path("mpirun")) GTEST_SKIP() << "mpirun is not installed";
  write(folder_ / "tiny.json",
        tiny_mlp_with(R"({"steps_per_print": 1, "training": {"steps": 100000}})"));
  Command job(ranks(mpirun()), {kSlowSteps, {}});
  ASSERT_TRUE(job.wait_for("step:  3")) << job.err;
  job.send(SIGTERM);
  EXPECT_GT(job.finish(), 0) << job.err;  // mpirun has its own codes
  EXPECT_GE(latest_step(run_), 3) << job.err;
}

TEST_F(faults_launchers, srun_starts_ranks) {
  OneNodeSlurm slurm;
  if (!slurm.why().empty()) GTEST_SKIP() << slurm.why();
  Command job(ranks({"srun", "-n", "2", "--overcommit"}), {slurm.environment(), {}});
  ASSERT_EQ(job.finish(), 0) << job.err;
  expect_two_ranks_trained();

  // A rank that is killed ends the step, and the other says whom it lost.
  write(folder_ / "tiny.json", tiny_mlp_with(R"({"training": {"steps": 100000}})"));
  Environment slowly = slurm.environment();
  slowly.insert(kSlowSteps.begin(), kSlowSteps.end());
  Command broken(ranks({"srun", "-n", "2", "--overcommit", "--kill-on-bad-exit=0"}), {slowly, {}});
  ASSERT_TRUE(broken.wait_for("step:")) << broken.err;
  const pid_t victim = broken.rank(1, "SLURM_PROCID");
  ASSERT_GT(victim, 0);
  ASSERT_TRUE(send_signal(victim, SIGKILL));
  EXPECT_GT(broken.finish(), 0) << broken.err;
  EXPECT_EQ(error_lines(broken.err), 1) << broken.err;
  EXPECT_TRUE(holds_all(broken.err, {"rank 1 (pid " + std::to_string(victim) + ") died"}));
}

TEST_F(faults_launchers, bench_measures_Open_MPI_in_the_same_run) {
  if (!on_path("mpirun")) GTEST_SKIP() << "mpirun is not installed";
  if (!std::filesystem::exists(
          trireme::testing::build_path("/libexec/trireme/trireme-mpi-peer.so")))
    GTEST_SKIP() << "this build has no MPI";
  Command bench(
      trireme({"bench", "all_reduce", "--nproc-per-node", "2", "--backend", "local,mpi", "-b", "4",
               "-e", "1K", "-f", "256", "--rounds", "2", "--json", folder_ / "b.jsonl"}));
  ASSERT_EQ(bench.finish(), 0) << bench.err;
  std::map<std::string, int> rows;
  for (const auto& row : json_lines(folder_ / "b.jsonl")) {
    if (row.contains("event")) continue;
    ++rows[row.at("backend")];
    EXPECT_EQ(row.at("wrong"), 0) << row;
    EXPECT_EQ(row.at("ranks"), 2) << row;
  }
  EXPECT_EQ(rows, (std::map<std::string, int>{{"local", 2}, {"mpi", 2}}));
}

/// Two processes that nobody watches.
class faults_bare_ranks : public faults_launchers {
 protected:
  Environment rank(int rank) const {
    const std::string r = std::to_string(rank);
    return {{"RANK", r},
            {"LOCAL_RANK", r},
            {"WORLD_SIZE", "2"},
            {"LOCAL_WORLD_SIZE", "2"},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port_)}};
  }
  int port_ = std::min(free_tcp_port(), 65000);
};

TEST_F(faults_bare_ranks, the_variables_of_torchrun_are_enough) {
  Command one(ranks({}), {rank(1), {}});
  Command zero(ranks({}), {rank(0), {}});
  EXPECT_EQ(zero.finish(), 0) << zero.err;
  EXPECT_EQ(one.finish(), 0) << one.err;
  EXPECT_EQ(one.err, "");  // rank 0 speaks for the job
  expect_two_ranks_trained();
}

TEST_F(faults_bare_ranks, the_survivor_of_a_kill_ends_within_seconds) {
  write(folder_ / "tiny.json", tiny_mlp_with(R"({"training": {"steps": 100000}})"));
  for (int victim : {0, 1}) {
    Command zero(ranks({}), {rank(0), {}}), one(ranks({}), {rank(1), {}});
    ASSERT_TRUE(zero.wait_for("step:")) << zero.err;
    const auto start = Clock::now();
    (victim == 0 ? zero : one).send(SIGKILL);
    Command& survivor = victim == 0 ? one : zero;
    EXPECT_EQ(survivor.finish(), 1) << survivor.err;
    EXPECT_LT(seconds_since(start), 5 * kSlack);
    EXPECT_EQ(error_lines(survivor.err), 1) << survivor.err;
    EXPECT_TRUE(holds_all(survivor.err, {"rank " + std::to_string(victim)}));
  }
}

TEST_F(faults_bare_ranks, one_job_after_another_at_the_same_port) {
  for (int round = 0; round < 2; ++round) {
    Command zero(ranks({}), {rank(0), {}});
    Command one(ranks({}), {rank(1), {}});
    EXPECT_EQ(zero.finish(), 0) << zero.err;
    EXPECT_EQ(one.finish(), 0) << one.err;
  }
}

TEST_F(faults_bare_ranks, a_rank_that_is_started_twice_is_refused) {
  write(folder_ / "tiny.json", tiny_mlp_with(R"({"comm": {"timeout_s": 20}})"));
  Environment three = rank(0), again = rank(1);
  three["WORLD_SIZE"] = again["WORLD_SIZE"] = "3";
  three["LOCAL_WORLD_SIZE"] = again["LOCAL_WORLD_SIZE"] = "3";
  Command zero(ranks({}), {three, {}});
  Command one(ranks({}), {again, {}});
  Command two(ranks({}), {again, {}});
  // Whichever of the two came second hears it; the other waits for rank 2.
  ASSERT_TRUE(eventually([&] {
    one.read_for(milliseconds(10));
    two.read_for(milliseconds(10));
    return error_lines(one.err) + error_lines(two.err) > 0;
  }));
  Command& late = error_lines(one.err) > 0 ? one : two;
  expect_refusal(late, 2, {"rank 1 of this job is taken already", "start each rank once"});
}

}  // namespace
}  // namespace trireme::testing::launchers_test
