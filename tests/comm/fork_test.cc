// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/backends.h"
#include "tests/support/forked_group.h"
#include "trireme/comm/start/run.h"

namespace fork_test {

// A child of a fork() has its parent's groups, and is no rank (mpi: comm/mpi/ranks_test.cc).
using namespace trireme;
using namespace trireme::testing;

namespace {

void expect_no_harm_on(const std::string& backend, int ranks, CallSite site = CallSite::here()) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions options;
  options.backend = backend;
  options.timeout = std::chrono::seconds(60);
  options.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  options.env = [](int rank) -> std::vector<std::string> {
    return {"TRIREME_HOST_ID=" + std::to_string(rank / 2)};
  };
  spawn(ranks, expect_children_do_no_harm, options, site);
}

}  // namespace

TEST(comm_fork, a_child_that_uses_its_parents_group_of_local_is_refused_and_does_no_harm) {
  expect_no_harm_on("local", 2);
}
TEST(comm_fork, a_child_that_uses_its_parents_group_of_gloo_is_refused_and_does_no_harm) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  expect_no_harm_on("gloo", 2);
}
TEST(comm_fork, a_child_that_uses_its_parents_group_of_hybrid_is_refused_and_does_no_harm) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo to go across hosts with";
  expect_no_harm_on("hybrid", 4);
}

TEST(comm_fork, ranks_that_are_threads_are_told_too) {
  run_threads(2, [](Group g) {
    at::Tensor t = at::ones({4});
    if (g.rank() == 0) {
      ForkedChild child(ChildEnd::exit_at_once, [&] {
        std::string wrong = refused_in_child("all_reduce", [&] { g.all_reduce(t).wait(); });
        g = {};
        return wrong;
      });
      EXPECT_EQ(child.ended(), "");
    }
    g.all_reduce(t).wait();
    EXPECT_TRUE(t.eq(2).all().item<bool>());
  });
}

TEST(comm_fork, a_world_of_one_and_a_fake_one_refuse_too) {
  for (int size : {1, 4}) {
    Group g = init_process_group({.backend = "fake", .rank = 0, .world_size = size});
    ForkedChild child(ChildEnd::exit_at_once,
                      [&] { return refused_in_child("barrier", [&] { g.barrier(); }); });
    EXPECT_EQ(child.ended(), "");
    g.barrier();
  }
}

TEST(comm_fork, a_child_makes_groups_of_its_own) {
  Group parents = init_process_group({.backend = "fake", .rank = 0, .world_size = 2});
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    std::string wrong;
    run_threads(2, [&](Group own) {
      at::Tensor t = at::ones({4});
      own.all_reduce(t).wait();
      if (!t.eq(2).all().item<bool>()) wrong = "wrong sum";
    });
    // To have one of its own does not make its parent's its own.
    return wrong + refused_in_child("barrier", [&] { parents.barrier(); });
  });
  EXPECT_EQ(child.ended(), "");
}

}  // namespace fork_test
