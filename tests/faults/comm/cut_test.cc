// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/comm/job.h"

// The link between two hosts is cut while those of one wait in each call for those of the other.
// Nobody is told; within 5 s both sides raise PeerLost, leave, and go on on their own: the host
// that kept the store over it, the other one in a file.
namespace trireme::testing::comm_cut_test {
namespace {

void expect_both_sides_go_on(const CommCase& like) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  Hosts hosts(2);
  if (!hosts.why().empty()) GTEST_SKIP() << hosts.why();
  Keeper keeper(&hosts);
  std::vector<std::unique_ptr<CommJob>> jobs;
  for (const CommCase& c : in_each_call(like, {Fault::cut})) {
    jobs.push_back(std::make_unique<CommJob>(c, &keeper, &hosts));
    EXPECT_TRUE(eventually([&] { return jobs.back()->waits(); }, kPlenty)) << c.name();
  }
  ASSERT_TRUE(hosts.cut(1));
  for (auto& job : jobs) job->cut();
  EXPECT_TRUE(eventually(
      [&] { return std::all_of(jobs.begin(), jobs.end(), [](auto& job) { return job->over(); }); },
      std::chrono::seconds(60)));
  for (auto& job : jobs) job->check();
}

TEST(faults_comm_cut, in_each_call_of_gloo) {
  expect_both_sides_go_on(
      {.backend = "gloo", .size = 2, .victim = 1, .per_host = 1, .elements = 1 << 16});
}

TEST(faults_comm_cut, in_each_call_of_hybrid) {
  expect_both_sides_go_on(
      {.backend = "hybrid", .size = 4, .victim = 3, .per_host = 2, .elements = 1 << 16});
}

}  // namespace
}  // namespace trireme::testing::comm_cut_test
