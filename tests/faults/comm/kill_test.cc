// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/comm/job.h"

// A process is killed in the middle of each call: every survivor raises PeerLost within 5 s, naming
// it, can leave the group and is in another one afterwards, over the same store.
namespace trireme::testing::comm_kill_test {
namespace {

const std::vector<Fault> kKills{Fault::kill_before, Fault::kill_inside};

TEST(faults_comm_kill, in_each_call_of_local) {
  expect_survivors_go_on(in_each_call({.backend = "local"}, kKills), 4);
}

TEST(faults_comm_kill, in_each_call_of_local_in_the_arena) {
  expect_survivors_go_on(in_each_call({.backend = "local", .in_arena = true}, kKills), 4);
}

TEST(faults_comm_kill, in_each_call_of_gloo) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  expect_survivors_go_on(in_each_call({.backend = "gloo"}, kKills), 4);
}

// Rank 3 is called rank 1 by the groups that the backend stands on.
TEST(faults_comm_kill, in_each_call_of_hybrid) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  expect_survivors_go_on(
      in_each_call({.backend = "hybrid", .size = 4, .victim = 3, .per_host = 2}, kKills), 4);
}

// Without a launcher's store: it dies with rank 0.
TEST(faults_comm_kill, of_rank_0_which_serves_the_store) {
  std::vector<CommCase> cases = in_each_call({.backend = "local", .victim = 0}, kKills);
  if (present("gloo")) {
    for (const CommCase& like :
         {CommCase{.backend = "gloo", .victim = 0},
          CommCase{.backend = "hybrid", .size = 4, .victim = 0, .per_host = 2}})
      for (const CommCase& c : in_each_call(like, kKills)) cases.push_back(c);
  }
  std::erase_if(cases, [](const CommCase& c) {
    const std::string name = c.call->name;
    return name != "all_reduce" && name != "recv" && name != "monitored_barrier";
  });
  expect_survivors_go_on(cases, 4, true);
}

}  // namespace
}  // namespace trireme::testing::comm_kill_test
