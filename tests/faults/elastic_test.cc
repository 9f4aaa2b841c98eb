// SPDX-License-Identifier: Apache-2.0
// `trireme train --nnodes=1:2`: hosts that come, leave and are cut off while a job runs.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/faults/job_on_hosts.h"
#include "tests/support/fault_times.h"
#include "trireme/base/file.h"

namespace trireme::testing::elastic_test {
namespace {

constexpr Duration kPatience = seconds(120);

class faults_elastic : public JobOnHosts {
 protected:
  faults_elastic() : JobOnHosts(3) {}

  /// One rank on one host; as many samples a step on any number of them.
  std::unique_ptr<Command> trainer(int host, const char* nodes = "1:2", const char* batch = "8",
                                   int steps = 200, const char* last_call = "0", int grace = 30) {
    const Arguments words =
        trireme({"train", write(folder_ / "tiny.json", kTinyMlp), std::string("--nnodes=") + nodes,
                 "--rdzv-backend=c10d", "--rdzv-endpoint=" + Hosts::address(0) + ":29400",
                 "--local-addr=" + Hosts::address(host),
                 std::string("--rdzv-conf=last_call_timeout=") + last_call,
                 "--steps=" + std::to_string(steps), "--run-dir", folder_ / "run", "--set",
                 std::string("train_batch_size=") + batch, "--set", "checkpoint.every=20", "--set",
                 "steps_per_print=1", "--shutdown-timeout=" + std::to_string(grace)});
    return std::make_unique<Command>(
        hosts_.on(host, words), CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"},
                                                {"TRIREME_FAILPOINTS", "train.step=sleep(50)"}},
                                               folder_.path()});
  }
  /// Sums are added in another order on another number of ranks, and nothing else differs.
  void expect_weights_of_a_calm_run(const char* batch = "8", int steps = 200) {
    const std::string calm = folder_ / "calm";
    Command job(trireme({"train", write(folder_ / "tiny.json", kTinyMlp), "--nproc-per-node=2",
                         "--steps=" + std::to_string(steps), "--run-dir", calm, "--set",
                         std::string("train_batch_size=") + batch}));
    ASSERT_EQ(job.finish(kPatience), 0) << job.err;
    Command diff(trireme(
        {"checkpoint", "diff", calm, folder_ / "run", "--tensors", "model.*", "--atol", "1e-5"}));
    EXPECT_EQ(diff.finish(), 0) << diff.out << diff.err;
  }
  void expect_one_job_after_a_cut_that_heals(Duration later) {
    const auto zero = trainer(0, "1:3", "24", 40, "60", 3),
               one = trainer(1, "1:3", "24", 40, "60", 3),
               two = trainer(2, "1:3", "24", 40, "60", 3);
    ASSERT_TRUE(zero->wait_for("step: 25/40", kPatience)) << zero->err << zero->out;
    ASSERT_TRUE(hosts_.cut(0));
    ASSERT_TRUE(one->wait_for("the launcher that keeps the job's store at", kPatience)) << one->err;
    one->wait_for("nothing says this", later);
    const size_t out = zero->out.size(), err = zero->err.size();
    ASSERT_TRUE(hosts_.mend(0));
    int ended_well = 0;
    for (const auto* launcher : {&zero, &one, &two}) {
      const int code = (*launcher)->finish(kPatience);
      const std::string& said = (*launcher)->err;
      ended_well += code == 0;
      EXPECT_TRUE(
          code == 0 ||
          (code == 1 && (said.find("the others may go on, and not these") != std::string::npos ||
                         said.find("go on without these") != std::string::npos)))
          << code << said;
      EXPECT_TRUE((*launcher)->left_nothing());
    }
    EXPECT_GE(ended_well, 2) << zero->err << one->err << two->err;
    const std::string then = zero->out.substr(out) + zero->err.substr(err);
    if (then.find("the job ends") != std::string::npos) {
      EXPECT_EQ(then.find("saved "), std::string::npos) << "it is left behind: " << then;
    }
    EXPECT_EQ(latest_step(folder_ / "run"), 40);
    expect_weights_of_a_calm_run("24", 40);
  }
};

TEST_F(faults_elastic, a_host_comes_and_leaves_and_no_step_is_lost) {
  const auto zero = trainer(0);
  ASSERT_TRUE(zero->wait_for("step: 10/200", kPatience)) << zero->err << zero->out;
  const auto one = trainer(1);
  ASSERT_TRUE(zero->wait_for("on 2 ranks", kPatience)) << zero->err << zero->out;
  ASSERT_TRUE(zero->wait_for("step: 80/200", kPatience)) << zero->err << zero->out;
  one->send(SIGTERM);
  EXPECT_EQ(one->finish(kPatience), 75) << one->err;
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_NE(zero->err.find(") has come: all workers start again"), std::string::npos) << zero->err;
  EXPECT_NE(zero->err.find("was asked to stop and leaves: all workers start again"),
            std::string::npos)
      << zero->err;
  const std::string said = zero->out + zero->err;
  for (int step = 1; step <= 200; ++step) {
    const std::string line = fmt::format("step: {:2}/200", step);
    const size_t at = said.find(line);
    ASSERT_NE(at, std::string::npos) << line;
    EXPECT_EQ(said.find(line, at + 1), std::string::npos) << line << " was done twice";
  }
  expect_weights_of_a_calm_run();
  EXPECT_TRUE(zero->left_nothing());
  EXPECT_TRUE(one->left_nothing());
}

// Both reach the run folder and neither the other: the first to claim what follows goes on, and the
// other one publishes nothing.
TEST_F(faults_elastic, one_of_two_goes_on_from_the_last_checkpoint_where_they_are_cut_off) {
  const auto zero = trainer(0), one = trainer(1);
  ASSERT_TRUE(zero->wait_for("on 2 ranks", kPatience)) << zero->err << zero->out;
  ASSERT_TRUE(zero->wait_for("step: 50/200", kPatience)) << zero->err << zero->out;
  ASSERT_TRUE(hosts_.cut(1));
  const auto cut = Clock::now();
  const auto said = [&](const auto& launcher) {
    return launcher->wait_for("go on without these: they claimed", std::chrono::milliseconds(50));
  };
  while (!said(zero) && !said(one) && Clock::now() - cut < kPatience) {
  }
  fault_took("cut host that may leave", cut);
  const int of_zero = zero->finish(kPatience), of_one = one->finish(kPatience);
  EXPECT_TRUE((of_zero == 0 && of_one == 1) || (of_zero == 1 && of_one == 0))
      << of_zero << zero->err << of_one << one->err;
  const std::string& lost = of_zero == 0 ? one->err : zero->err;
  EXPECT_NE(lost.find("other nodes of the job go on without these: they claimed generation"),
            std::string::npos)
      << lost;
  EXPECT_EQ((zero->err + one->err).find("FAILED"), std::string::npos) << zero->err << one->err;
  expect_weights_of_a_calm_run();
}

TEST_F(faults_elastic, two_of_three_go_on_where_the_host_with_the_store_is_cut_off) {
  const auto zero = trainer(0, "1:3", "24");
  ASSERT_TRUE(zero->wait_for("step: 10/200", kPatience)) << zero->err << zero->out;
  const auto one = trainer(1, "1:3", "24"), two = trainer(2, "1:3", "24");
  ASSERT_TRUE(zero->wait_for("3 of 3 node(s) begin", kPatience)) << zero->err << zero->out;
  ASSERT_TRUE(hosts_.cut(0));
  EXPECT_EQ(one->finish(kPatience), 0) << one->err;
  EXPECT_EQ(two->finish(kPatience), 0) << two->err;
  EXPECT_EQ(zero->finish(kPatience), 1) << zero->err;
  EXPECT_NE(zero->err.find("1 of the 3 nodes of the job are together here: the others may go on"),
            std::string::npos)
      << zero->err;
  // The older of the two takes over, and they came at the same time.
  const bool of_one = one->err.find("this node keeps the job's store from now on, at 10.77.0.2:") !=
                      std::string::npos;
  const bool of_two = two->err.find("this node keeps the job's store from now on, at 10.77.0.3:") !=
                      std::string::npos;
  EXPECT_NE(of_one, of_two) << one->err << two->err;
}

// Both sides have ended their workers by then, and ask the others whom they follow. Whoever wins,
// one job goes on, and who is left behind ends by name and publishes nothing more.
TEST_F(faults_elastic, a_cut_that_heals_while_a_new_store_is_elected_leaves_one_job) {
  expect_one_job_after_a_cut_that_heals(seconds(0));
}

// When the others have as good as decided, and the one with the old store has begun to ask.
TEST_F(faults_elastic, a_cut_that_heals_as_a_new_store_is_elected_leaves_the_new_one) {
  if (!std::getenv("TRIREME_SOAK")) GTEST_SKIP() << "half a minute; launch_succession has it, too";
  expect_one_job_after_a_cut_that_heals(seconds(4));
}

TEST_F(faults_elastic, halves_of_a_job_without_a_place_to_claim_end_by_name) {
  const auto launcher = [&](int host) {
    return std::make_unique<Command>(
        hosts_.on(host, trireme({"run", "--nnodes=1:2", "--rdzv-backend=c10d",
                                 "--rdzv-endpoint=" + Hosts::address(0),
                                 "--local-addr=" + Hosts::address(host),
                                 "--rdzv-conf=last_call_timeout=0", "sh", "-c",
                                 "echo $WORLD_SIZE nodes; sleep 1000"})),
        CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"}}, folder_.path()});
  };
  const auto zero = launcher(0), one = launcher(1);
  ASSERT_TRUE(zero->wait_for("2 nodes\n", kPatience)) << zero->err;
  ASSERT_TRUE(one->wait_for("2 nodes\n", kPatience)) << one->err;
  ASSERT_TRUE(hosts_.cut(1));
  for (const auto* side : {&zero, &one}) {
    EXPECT_EQ((*side)->finish(kPatience), 1) << (*side)->err;
    EXPECT_NE((*side)->err.find("--rdzv-conf shared_file=PATH"), std::string::npos) << (*side)->err;
  }
}

}  // namespace
}  // namespace trireme::testing::elastic_test
