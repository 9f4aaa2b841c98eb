// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/comm/job.h"

// A process is stopped in the middle of each call: it holds its memory and its sockets, so only the
// deadline tells. Every survivor raises a Timeout that names it, then; the group can be left and
// another one built, over the same store.
namespace trireme::testing::comm_stop_test {
namespace {

using std::chrono::seconds;

// Most of the time they wait: all at once.
const std::vector<Fault> kStops{Fault::stop_before, Fault::stop_inside};

TEST(faults_comm_stop, in_each_call_of_local) {
  expect_survivors_go_on(in_each_call({.backend = "local", .timeout = seconds(2)}, kStops), 16);
}

TEST(faults_comm_stop, in_each_call_of_local_in_the_arena) {
  expect_survivors_go_on(
      in_each_call({.backend = "local", .in_arena = true, .timeout = seconds(2)}, kStops), 16);
}

TEST(faults_comm_stop, in_each_call_of_gloo) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  expect_survivors_go_on(in_each_call({.backend = "gloo", .timeout = seconds(2)}, kStops), 16);
}

TEST(faults_comm_stop, in_each_call_of_hybrid) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  expect_survivors_go_on(
      in_each_call(
          {.backend = "hybrid", .size = 4, .victim = 3, .per_host = 2, .timeout = seconds(2)},
          kStops),
      8);
}

// Without a launcher's store: nobody answers any more.
TEST(faults_comm_stop, of_rank_0_which_serves_the_store) {
  std::vector<CommCase> cases =
      in_each_call({.backend = "local", .victim = 0, .timeout = seconds(2)}, kStops);
  if (present("gloo")) {
    for (const CommCase& like :
         {CommCase{.backend = "gloo", .victim = 0, .timeout = seconds(2)},
          CommCase{
              .backend = "hybrid", .size = 4, .victim = 0, .per_host = 2, .timeout = seconds(2)}})
      for (const CommCase& c : in_each_call(like, kStops)) cases.push_back(c);
  }
  std::erase_if(cases, [](const CommCase& c) {
    const std::string name = c.call->name;
    return name != "all_reduce" && name != "recv" && name != "monitored_barrier";
  });
  expect_survivors_go_on(cases, 16, true);
}

}  // namespace
}  // namespace trireme::testing::comm_stop_test
