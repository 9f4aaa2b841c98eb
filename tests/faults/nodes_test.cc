// SPDX-License-Identifier: Apache-2.0
// `trireme run --nnodes` and `trireme train --nnodes` on hosts of their own: what is computed
// there, and a host that is cut off.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/job_on_hosts.h"
#include "tests/support/fault_times.h"
#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::testing::nodes_test {
namespace {

constexpr Duration kPatience = seconds(90);

class faults_nodes : public JobOnHosts {
 protected:
  faults_nodes() : JobOnHosts(2) {}

  /// The launcher of one host, in the words of a cluster's wiki page.
  std::unique_ptr<Command> launcher(int node, int workers, const Arguments& program,
                                    const Arguments& more = {}) {
    Arguments words = trireme({"run", "--nnodes=2", "--node-rank=" + std::to_string(node),
                               "--nproc-per-node=" + std::to_string(workers),
                               "--master-addr=" + Hosts::address(0), "--master-port=29500"});
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), program.begin(), program.end());
    return std::make_unique<Command>(
        hosts_.on(node, words), CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"}}, ""});
  }

  /// `trireme train` on one host, one rank on each.
  std::unique_ptr<Command> trainer(int node, const std::string& run, const Arguments& more = {},
                                   const std::string& failpoints = "") {
    Arguments words =
        trireme({"train", write(folder_ / "tiny.json", kTinyMlp), "--nnodes=2",
                 "--node-rank=" + std::to_string(node), "--master-addr=" + Hosts::address(0),
                 "--master-port=29500", "--steps=60", "--set", "checkpoint.every=10", "--set",
                 "steps_per_print=1000000"});
    if (!run.empty()) words.insert(words.end(), {"--run-dir", run});
    words.insert(words.end(), more.begin(), more.end());
    Environment environment{{"TRIREME_SECRET_FILE", folder_ / "secret"}};
    if (!failpoints.empty()) environment["TRIREME_FAILPOINTS"] = failpoints;
    return std::make_unique<Command>(hosts_.on(node, words),
                                     CommandOptions{environment, folder_.path()});
  }
  std::string weights_of(const std::string& run) const {
    return read_file(run + "/step-00000060/model.safetensors") +
           read_file(run + "/step-00000060/state.safetensors");
  }
  /// What two ranks of one host come to.
  std::string on_one_host() const {
    const std::string run = folder_ / "one-host";
    Command job(trireme({"train", write(folder_ / "tiny.json", kTinyMlp), "--nproc-per-node=2",
                         "--steps=60", "--run-dir", run}));
    EXPECT_EQ(job.finish(kPatience), 0) << job.err;
    return weights_of(run);
  }
};

/// The number behind the last "loss ".
double last_loss(const std::string& out) {
  const size_t at = out.rfind("loss ");
  return at == std::string::npos ? 99 : std::atof(out.c_str() + at + 5);
}

TEST_F(faults_nodes, a_program_on_two_hosts_of_unequal_size_learns_as_on_one) {
  const std::string program = trireme::testing::build_path("/tests/own_loop_ddp");
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  Command alone(trireme({"run", "--nproc-per-node=3", program, "8"}));
  ASSERT_EQ(alone.finish(kPatience), 0) << alone.err;
  ASSERT_LT(last_loss(alone.out), 0.2) << alone.out;
  const auto one = launcher(1, 1, {program, "8"});
  const auto zero = launcher(0, 2, {program, "8"});
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 0) << one->err;
  EXPECT_NEAR(last_loss(zero->out), last_loss(alone.out), 0.02) << zero->out << alone.out;
}

TEST_F(faults_nodes, a_rank_that_hangs_is_named_on_both_hosts_by_the_launcher_that_sees_it) {
  const std::string run = folder_ / "run";
  const auto one = trainer(1, run, {"--hang-timeout=1"}, "train.step@5#1=sleep(600000)");
  const auto zero = trainer(0, run, {"--hang-timeout=1"});
  EXPECT_EQ(zero->finish(kPatience), 1) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 1) << one->err;
  EXPECT_TRUE(holds_all(one->err, {") hangs in step 5: ", "and it waits in no call"})) << one->err;
  // Its own rank waits, for one that it does not see.
  EXPECT_TRUE(holds_all(zero->err, {"rank 1 (pid ", ") hangs in step 5: "})) << zero->err;
  EXPECT_EQ(zero->err.find("rank 0 (pid"), std::string::npos) << zero->err;
}

TEST_F(faults_nodes, trireme_train_on_two_hosts_has_the_bits_of_one_and_goes_on) {
  const std::string run = folder_ / "run";
  {
    const auto one = trainer(1, run, {"--steps=30"}), zero = trainer(0, run, {"--steps=30"});
    EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
    EXPECT_EQ(one->finish(kPatience), 0) << one->err;
    EXPECT_NE(zero->err.find("run folder " + run), std::string::npos) << zero->err;
  }
  const auto zero = trainer(0, run, {"--resume"}), one = trainer(1, run, {"--resume"});
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 0) << one->err;
  EXPECT_NE(zero->err.find("going on after step 30"), std::string::npos) << zero->err;
  EXPECT_EQ(weights_of(run), on_one_host());
  EXPECT_TRUE(zero->left_nothing());
  EXPECT_TRUE(one->left_nothing());
}

TEST_F(faults_nodes, trireme_train_starts_a_killed_rank_of_another_host_again) {
  const std::string run = folder_ / "run";
  const auto zero = trainer(0, run, {"--max-restarts=2"});
  const auto one = trainer(1, run, {"--max-restarts=2"}, "train.step@25#1=kill");
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 0) << one->err;
  EXPECT_NE(zero->err.find("was ended by SIGKILL"), std::string::npos) << zero->err;
  EXPECT_NE(zero->err.find("going on after step 20"), std::string::npos) << zero->err;
  EXPECT_NE(zero->err.find("going on after step 40"), std::string::npos) << zero->err;
  EXPECT_EQ(weights_of(run), on_one_host());
}

TEST_F(faults_nodes, a_signal_to_one_launcher_of_trireme_train_saves_on_all_hosts) {
  const std::string run = folder_ / "run";
  const Arguments endless{"--steps=1000000", "--set", "steps_per_print=1"};
  const auto zero = trainer(0, run, endless), one = trainer(1, run, endless);
  ASSERT_TRUE(zero->wait_for("step: 20/", kPatience)) << zero->err << zero->out;
  one->send(SIGTERM);
  EXPECT_EQ(one->finish(kPatience), 75) << one->err;
  EXPECT_EQ(zero->finish(kPatience), 75) << zero->err;
  EXPECT_GE(latest_step(run), 20);
}

TEST_F(faults_nodes, what_trireme_train_refuses_it_refuses_on_each_host_in_one_sentence) {
  const auto nowhere = trainer(0, "");
  expect_refusal(*nowhere, kExitUsage, {"--nnodes=2", "--run-dir", "all nodes see"});
  const Arguments three{"--set", "train_batch_size=3", "--set", "gradient_accumulation_steps=1"};
  const auto zero = trainer(0, folder_ / "run", three), one = trainer(1, folder_ / "run", three);
  expect_refusal(*zero, kExitUsage, {"train_batch_size", "3"}, kPatience);
  expect_refusal(*one, kExitUsage, {"train_batch_size", "3"}, kPatience);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(faults_nodes, a_host_that_is_cut_off_is_named_and_both_sides_end) {
  const Arguments waiting{"sh", "-c", "echo ready; sleep 1000"};
  const auto zero = launcher(0, 1, waiting);
  const auto one = launcher(1, 1, waiting);
  ASSERT_TRUE(zero->wait_for("ready\n", kPatience)) << zero->err;
  ASSERT_TRUE(one->wait_for("ready\n", kPatience)) << one->err;
  ASSERT_TRUE(hosts_.cut(1));
  const auto cut = Clock::now();
  ASSERT_TRUE(zero->wait_for("is gone", kPatience)) << zero->err;
  fault_took("cut host", cut);
  EXPECT_EQ(zero->finish(kPatience), 1) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 1) << one->err;
  // 5 s until a silent host is known, and the store's last wait for it when it closes.
  EXPECT_LT(seconds_since(cut), kSlack * 15);
  EXPECT_NE(zero->err.find("node 1 ("), std::string::npos) << zero->err;
  EXPECT_NE(one->err.find("the launcher that keeps the job's store at 10.77.0.1:"),
            std::string::npos)
      << one->err;
}

}  // namespace
}  // namespace trireme::testing::nodes_test
