// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/types.h>

#include <cstdlib>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"

namespace spawn_test {

using namespace trireme;

namespace {

// A rank is this program again; it must reach the same spawn call, so it runs this test alone.
SpawnOptions this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.timeout = std::chrono::seconds(30);
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  return o;
}

}  // namespace

TEST(comm_spawn, processes_reduce_in_the_arena_and_in_ordinary_memory) {
  spawn(
      3,
      [](Group g) {
        for (bool arena : {true, false}) {
          at::Tensor t = arena ? g.empty({100001}, at::kFloat) : at::empty({100001});
          t.fill_(g.rank() + 1);
          g.all_reduce(t).wait();
          check<Error>(t.eq(6).all().item<bool>(), "wrong sum, arena {}", arena);
        }
        at::Tensor many = at::arange(3 * 50000, at::kLong), mine = at::empty({50000}, at::kLong);
        g.reduce_scatter_tensor(mine, many).wait();
        check<Error>(mine.equal(many.narrow(0, g.rank() * 50000, 50000) * 3), "wrong part");
      },
      this_test());
}

TEST(comm_spawn, works_from_a_process_that_runs_threads) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) std::this_thread::yield();
  });
  spawn(
      2, [](Group g) { g.barrier(); }, this_test());
  stop = true;
  busy.join();
}

TEST(comm_spawn, the_first_cause_is_thrown_and_the_others_are_stopped) {
  const auto begin = Clock::now();
  try {
    spawn(
        2,
        [](Group g) {
          g.barrier();
          if (g.rank() == 1) throw NumericError("loss is nan in step 7");
          g.barrier();
        },
        this_test());
    FAIL() << "nothing thrown";
  } catch (const PeerLost& e) {
    EXPECT_EQ(std::string(e.what()), "spawn: rank 1 failed: NumericError: loss is nan in step 7");
    EXPECT_EQ(e.peer(), 1);
  }
  EXPECT_LT(seconds_since(begin), 15.0);
}

// A loop that only asks must learn of a dead peer too.
TEST(comm_spawn, who_polls_a_work_hears_of_a_killed_rank) {
  try {
    spawn(
        2,
        [](Group g) {
          g.barrier();
          if (g.rank() == 1) ::raise(SIGKILL);
          at::Tensor t = at::ones({4});
          Work work = g.all_reduce(t);
          const auto begin = Clock::now();
          try {
            while (!work.is_completed())
              check<Error>(seconds_since(begin) < 15, "nobody said that rank 1 is gone");
          } catch (const PeerLost& e) {
            check<Error>(std::string(e.what()).find("rank 1") != std::string::npos, "{}", e.what());
          }
        },
        this_test());
    FAIL() << "a killed rank is an error of spawn";
  } catch (const PeerLost& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1 failed: killed by signal 9"), std::string::npos)
        << e.what();
  }
}

TEST(comm_spawn, a_killed_rank_is_named) {
  try {
    spawn(
        2,
        [](Group g) {
          g.barrier();
          if (g.rank() == 0) ::raise(SIGKILL);
          g.barrier();
        },
        this_test());
    FAIL() << "nothing thrown";
  } catch (const PeerLost& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0 failed: killed by signal 9"), std::string::npos)
        << e.what();
  }
}

// A worker that spawns ranks is one of its launcher's; they are not.
TEST(comm_spawn, the_ranks_of_a_worker_are_no_members_of_its_job) {
  if (!std::getenv("TRIREME_SPAWN")) ::setenv("TRIREME_MEMBER", "7", 1);
  spawn(
      2,
      [](Group) {
        check<Error>(!std::getenv("TRIREME_MEMBER"), "the launcher's number was handed on");
      },
      this_test());
  ::unsetenv("TRIREME_MEMBER");
}

TEST(comm_init, without_a_launcher_it_is_a_world_of_one) {
  Group g = init_process_group();
  EXPECT_EQ(g.rank(), 0);
  EXPECT_EQ(g.size(), 1);
  at::Tensor t = at::ones({5});
  g.all_reduce(t, ReduceOp::avg).wait();
  EXPECT_TRUE(t.equal(at::ones({5})));
  g.barrier();
}

TEST(comm_init, unknown_backends_and_half_given_ranks_are_refused) {
  EXPECT_THROW(init_process_group({.backend = "nccl"}), UsageError);
  EXPECT_THROW(init_process_group({.rank = 0}), UsageError);
  EXPECT_THROW(init_process_group({.init_method = "tcp://127.0.0.1:1"}), UsageError);
}

TEST(comm_init, a_world_that_never_completes_names_the_missing_rank) {
  const auto begin = Clock::now();
  ::setenv("RANK", "0", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("LOCAL_WORLD_SIZE", "2", 1);
  ::setenv("LOCAL_RANK", "0", 1);
  ::setenv("TORCHELASTIC_RUN_ID", "never", 1);
  std::string text;
  try {
    init_process_group({.timeout = std::chrono::milliseconds(700)});
  } catch (const Timeout& e) {
    text = e.what();
  }
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"})
    ::unsetenv(name);
  EXPECT_NE(text.find("1"), std::string::npos) << text;
  EXPECT_LT(seconds_since(begin), 10);
}

}  // namespace spawn_test
