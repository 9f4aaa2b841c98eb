// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <cstdlib>

#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/comm/flight/dump.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/verdict.h"
#include "trireme/comm/start/run.h"

namespace flight_recorder_test {

// What a job leaves behind when it fails, is asked, or dies.
using namespace trireme;

namespace {

using trireme::testing::has;

// A rank is this program again; it must reach the same spawn call, so it runs this test alone.
SpawnOptions this_test(const std::string& folder) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.timeout = std::chrono::seconds(30);
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  o.env = [folder](int) { return std::vector<std::string>{"TRIREME_FLIGHT_DIR=" + folder}; };
  return o;
}

}  // namespace

TEST(comm_flight_recorder, a_job_that_diverged_is_explained_in_one_sentence) {
  PrivateFolder parent;
  const std::string folder = parent / "flight";
  EXPECT_THROW(spawn(
                   3,
                   [](Group g) {
                     for (int i = 0; i < 56; ++i) g.all_reduce(at::ones(10)).wait();
                     if (g.rank() == 1)
                       g.broadcast(at::ones(10), 0).wait();
                     else
                       g.all_reduce(at::ones(10)).wait();
                   },
                   this_test(folder)),
               Error);
  const auto all = flight::read_dumps(folder);
  ASSERT_EQ(all.size(), 3u);
  const auto v = flight::judge(all);
  EXPECT_TRUE(has(v.sentence,
                  "rank 1 called broadcast(float32[10], root 0) at tests/comm/"
                  "flight_recorder_test.cc:") &&
              has(v.sentence,
                  " as its call 57 of group world where ranks 0 and 2 called "
                  "all_reduce(float32[10], sum) at tests/comm/flight_recorder_test.cc:"))
      << v.sentence;
}

TEST(comm_flight_recorder, a_rank_that_crashes_writes_its_last_calls_itself) {
  PrivateFolder parent;
  const std::string folder = parent / "flight";
  EXPECT_THROW(spawn(
                   2,
                   [](Group g) {
                     g.all_reduce(at::ones(10)).wait();
                     if (g.rank() == 1) ::raise(SIGSEGV);
                     g.all_reduce(at::ones(10)).wait();
                   },
                   this_test(folder)),
               Error);
  const auto all = flight::read_dumps(folder);
  ASSERT_GE(all.size(), 1u);
  const auto& crashed = all.back();
  EXPECT_EQ(crashed.rank, 1);
  EXPECT_EQ(crashed.writer, 1);
  EXPECT_EQ(crashed.signal, SIGSEGV);
  EXPECT_EQ(crashed.calls.size(), 1u);
}

TEST(comm_flight_recorder, usr2_writes_and_the_job_goes_on) {
  PrivateFolder parent;
  const std::string folder = parent / "flight";
  spawn(
      2,
      [](Group g) {
        g.all_reduce(at::ones(10)).wait();
        g.barrier();
        ::raise(SIGUSR2);
        g.all_reduce(at::ones(10)).wait();
      },
      this_test(folder));
  const auto all = flight::read_dumps(folder);
  ASSERT_EQ(all.size(), 2u);
  const auto v = flight::judge(all);
  EXPECT_EQ(v.kind, flight::Verdict::agree) << v.sentence;
  EXPECT_TRUE(has(v.sentence, "all ranks agree: no divergence")) << v.sentence;
}

TEST(comm_flight_recorder, a_program_can_ask_and_groups_have_files_of_their_own) {
  PrivateFolder folder;
  run_threads(3, [&](Group g) {
    Group pair = g.new_group({0, 2});
    if (pair) pair.all_reduce(at::ones(3)).wait();
    g.send(at::ones(2), (g.rank() + 1) % 3).wait();
    g.recv(at::empty(2), (g.rank() + 2) % 3).wait();
    g.barrier();
    if (g.rank() == 0) {
      EXPECT_EQ(flight_dump(folder.path()), 5);
    }
    g.barrier();
  });
  const auto all = flight::read_dumps(folder.path());
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].group, "world");
  EXPECT_EQ(all[4].group.rfind("world/", 0), 0u);
  EXPECT_EQ(all[4].world_rank, 2);
  EXPECT_EQ(all[4].rank, 1);
  EXPECT_FALSE(all[0].pairs.empty());
  EXPECT_EQ(flight::judge(all).kind, flight::Verdict::agree) << flight::judge(all).sentence;
}

}  // namespace flight_recorder_test
