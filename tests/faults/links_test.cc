// SPDX-License-Identifier: Apache-2.0
// Links between the hosts of a job that are cut in one direction, or for a moment.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "tests/faults/job_on_hosts.h"
#include "tests/support/fault_times.h"
#include "trireme/base/file.h"

namespace trireme::testing::links_test {
namespace {

constexpr Duration kPatience = seconds(90);

class faults_links : public JobOnHosts {
 protected:
  faults_links() : JobOnHosts(2) {}

  /// Its worker waits until the file "go" is there.
  std::unique_ptr<Command> launcher(int node) {
    const std::string script =
        "echo ready; while [ ! -e " + (folder_ / "go") + " ]; do sleep 0.05; done; echo went on";
    return std::make_unique<Command>(
        hosts_.on(node, trireme({"run", "--nnodes=2", "--node-rank=" + std::to_string(node),
                                 "--master-addr=" + Hosts::address(0), "sh", "-c", script})),
        CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"}}, ""});
  }
};

TEST_F(faults_links, of_which_one_direction_is_cut_end_the_job_on_both_sides) {
  const auto zero = launcher(0), one = launcher(1);
  ASSERT_TRUE(zero->wait_for("ready\n", kPatience)) << zero->err;
  ASSERT_TRUE(one->wait_for("ready\n", kPatience)) << one->err;
  ASSERT_TRUE(hosts_.cut_one_way(1, 0));
  const auto cut = Clock::now();
  ASSERT_TRUE(zero->wait_for("is gone", kPatience)) << zero->err;
  fault_took("one-way cut", cut);
  EXPECT_LT(seconds_since(cut), kSlack * 5);
  EXPECT_EQ(zero->finish(kPatience), 1) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 1) << one->err;
  EXPECT_LT(seconds_since(cut), kSlack * 15);
  EXPECT_NE(zero->err.find("node 1 ("), std::string::npos) << zero->err;
  EXPECT_NE(one->err.find("the launcher that keeps the job's store at 10.77.0.1:"),
            std::string::npos)
      << one->err;
}

TEST_F(faults_links, that_are_cut_for_a_second_cost_nothing) {
  const auto zero = launcher(0), one = launcher(1);
  ASSERT_TRUE(zero->wait_for("ready\n", kPatience)) << zero->err;
  ASSERT_TRUE(one->wait_for("ready\n", kPatience)) << one->err;
  ASSERT_TRUE(hosts_.cut(1));
  ::usleep(1'000'000);  // shorter than any silence that counts
  ASSERT_TRUE(hosts_.mend(1));
  const auto mended = Clock::now();
  write(folder_ / "go", "");
  EXPECT_EQ(zero->finish(kPatience), 0) << zero->err;
  EXPECT_EQ(one->finish(kPatience), 0) << one->err;
  fault_took("healed cut", mended);
  EXPECT_NE(zero->out.find("went on"), std::string::npos) << zero->out;
  EXPECT_NE(one->out.find("went on"), std::string::npos) << one->out;
}

}  // namespace
}  // namespace trireme::testing::links_test
