// SPDX-License-Identifier: Apache-2.0
// `trireme run --nnodes` on hosts of their own: what a program computes there, and a host that is
// cut off.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/job.h"
#include "tests/support/namespaces.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

namespace trireme::testing::nodes_test {
namespace {

constexpr Duration kPatience = seconds(90);

class faults_nodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why().empty()) GTEST_SKIP() << hosts_.why();
    launch::write_secret(folder_ / "secret", net::generate_secret());
  }

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

  Hosts hosts_{2};
  PrivateFolder folder_{"trireme-test"};
};

/// The number behind the last "loss ".
double last_loss(const std::string& out) {
  const size_t at = out.rfind("loss ");
  return at == std::string::npos ? 99 : std::atof(out.c_str() + at + 5);
}

TEST_F(faults_nodes, a_program_on_two_hosts_of_unequal_size_learns_as_on_one) {
  const std::string program = TRIREME_BUILD_DIR "/tests/own_loop_ddp";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "this build has no LibTorch";
  Command alone(trireme({"run", "--nproc-per-node=3", program, "8"}));
  ASSERT_EQ(alone.finish(kPatience), 0) << alone.err;
  ASSERT_LT(last_loss(alone.out), 0.2) << alone.out;
  const auto one = launcher(1, 1, {program, "8"});
  const auto zero = launcher(0, 2, {program, "8"});
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 0) << one->err;
  EXPECT_NEAR(last_loss(zero->out), last_loss(alone.out), 0.02) << zero->out << alone.out;
}

TEST_F(faults_nodes, a_host_that_is_cut_off_is_named_and_both_sides_end) {
  const Arguments waiting{"sh", "-c", "echo ready; sleep 1000"};
  const auto zero = launcher(0, 1, waiting);
  const auto one = launcher(1, 1, waiting);
  ASSERT_TRUE(zero->wait_for("ready\n", kPatience)) << zero->err;
  ASSERT_TRUE(one->wait_for("ready\n", kPatience)) << one->err;
  ASSERT_TRUE(hosts_.cut(1));
  const auto cut = Clock::now();
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
