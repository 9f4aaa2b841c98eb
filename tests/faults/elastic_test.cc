// SPDX-License-Identifier: Apache-2.0
// `trireme train --nnodes=1:2`: hosts that come, leave and are cut off while a job runs.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>

#include "tests/faults/job.h"
#include "tests/support/fault_times.h"
#include "tests/support/namespaces.h"
#include "trireme/base/file.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

namespace trireme::testing::elastic_test {
namespace {

constexpr Duration kPatience = seconds(120);

class faults_elastic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why().empty()) GTEST_SKIP() << hosts_.why();
    launch::write_secret(folder_ / "secret", net::generate_secret());
  }

  /// One rank on one host; 8 samples a step on any number of them.
  std::unique_ptr<Command> trainer(int host) {
    const Arguments words = trireme(
        {"train", write(folder_ / "tiny.json", kTinyMlp), "--nnodes=1:2", "--rdzv-backend=c10d",
         "--rdzv-endpoint=" + Hosts::address(0) + ":29400", "--local-addr=" + Hosts::address(host),
         "--rdzv-conf=last_call_timeout=0", "--steps=200", "--run-dir", folder_ / "run", "--set",
         "train_batch_size=8", "--set", "checkpoint.every=20", "--set", "steps_per_print=1"});
    return std::make_unique<Command>(
        hosts_.on(host, words), CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"},
                                                {"TRIREME_FAILPOINTS", "train.step=sleep(50)"}},
                                               folder_.path()});
  }
  /// Sums are added in another order on another number of ranks, and nothing else differs.
  void expect_weights_of_a_calm_run() {
    const std::string calm = folder_ / "calm";
    Command job(trireme({"train", write(folder_ / "tiny.json", kTinyMlp), "--nproc-per-node=2",
                         "--steps=200", "--run-dir", calm, "--set", "train_batch_size=8"}));
    ASSERT_EQ(job.finish(kPatience), 0) << job.err;
    Command diff(trireme(
        {"checkpoint", "diff", calm, folder_ / "run", "--tensors", "model.*", "--atol", "1e-5"}));
    EXPECT_EQ(diff.finish(), 0) << diff.out << diff.err;
  }

  Hosts hosts_{2};
  PrivateFolder folder_{"trireme-test"};
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

TEST_F(faults_elastic, the_other_goes_on_from_the_last_checkpoint_where_a_host_is_cut_off) {
  const auto zero = trainer(0), one = trainer(1);
  ASSERT_TRUE(zero->wait_for("on 2 ranks", kPatience)) << zero->err << zero->out;
  ASSERT_TRUE(zero->wait_for("step: 50/200", kPatience)) << zero->err << zero->out;
  ASSERT_TRUE(hosts_.cut(1));
  const auto cut = Clock::now();
  ASSERT_TRUE(zero->wait_for("is gone", kPatience)) << zero->err;
  fault_took("cut host that may leave", cut);
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 1) << one->err;
  EXPECT_NE(zero->err.find("is gone: its launcher ended without a word, or its host or the network "
                           "to it did: all workers start again"),
            std::string::npos)
      << zero->err;
  EXPECT_EQ(zero->err.find("FAILED"), std::string::npos) << zero->err;
  // Its rank or its launcher says it, whichever sees it first.
  EXPECT_NE(one->err.find("10.77.0.1:29400 is gone"), std::string::npos) << one->err;
  expect_weights_of_a_calm_run();
}

}  // namespace
}  // namespace trireme::testing::elastic_test
