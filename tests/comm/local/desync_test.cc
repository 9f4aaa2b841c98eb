// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/ranks.h"
#include "tests/support/refusals.h"

namespace desync_test {

using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

Call reduce_of(float* p, size_t n, CallSite at = CallSite::here()) {
  return {
      .op = Collective::all_reduce, .dtype = DType::f32, .in = p, .out = p, .count = n, .site = at};
}

}  // namespace

TEST(comm_local_desync, wrong_dtype_raises_on_all_ranks_naming_both_calls) {
  auto outcomes = as_threads(3, [](Engine& e) {
    std::vector<double> v(64);
    e.run({.op = Collective::barrier, .site = CallSite::here()});
    Call c = reduce_of(reinterpret_cast<float*>(v.data()), 64);
    if (e.rank() == 2) c.dtype = DType::f64;
    e.run(c);
  });
  for (int r = 0; r < 3; ++r) {
    const std::string& o = outcomes[size_t(r)];
    EXPECT_TRUE(has(o, "Mismatch: call 2: rank ")) << o;
    EXPECT_TRUE(has(o, "float32[64], sum) at ") &&
                has(o, "rank 2 called all_reduce(float64[64], sum) at "))
        << o;
    EXPECT_TRUE(has(o, "desync_test.cc:")) << o;
  }
}

TEST(comm_local_desync, wrong_operation_count_or_root_is_a_mismatch) {
  for (int wrong = 0; wrong < 3; ++wrong) {
    auto outcomes = as_processes(2, [wrong](Engine& e) {
      std::vector<float> v(100);
      Call c{.op = Collective::broadcast,
             .dtype = DType::f32,
             .root = 0,
             .in = v.data(),
             .out = v.data(),
             .count = 100,
             .site = CallSite::here()};
      if (e.rank() == 1 && wrong == 0) c.op = Collective::all_reduce;
      if (e.rank() == 1 && wrong == 1) c.count = 99;
      if (e.rank() == 1 && wrong == 2) c.root = 1;
      e.run(c);
    });
    for (auto& o : outcomes) EXPECT_TRUE(has(o, "Mismatch: call 1: rank 0 called broadcast")) << o;
  }
}

// The same pair at fault, told alike by every rank, whether the parts travel in slots or not, and
// whether the others' counts are even or not.
TEST(comm_local_desync, all_to_all_counts_that_disagree_are_a_mismatch_on_all_ranks) {
  auto body = [](uint64_t count, bool even) {
    return [count, even](Engine& e) {
      std::vector<uint64_t> counts(3, count), theirs(3, count);
      if (!even) {
        counts[2] = theirs[2] = e.rank() == 2 ? count + 1 : count;
        if (e.rank() == 2) counts[0] = counts[1] = count, theirs = counts;
      }
      if (e.rank() == 1) theirs[0] = count + 4;
      std::vector<float> in(4 * count + 16), out(4 * count + 16);
      e.run({.op = Collective::all_to_all,
             .dtype = DType::f32,
             .in = in.data(),
             .out = out.data(),
             .site = CallSite::here(),
             .send_counts = counts.data(),
             .recv_counts = theirs.data()});
    };
  };
  for (uint64_t count : {uint64_t{1}, uint64_t{100}, uint64_t{20000}})
    for (bool even : {true, false}) {
      for (const auto& outcomes :
           {as_threads(3, body(count, even)), as_processes(3, body(count, even))})
        for (auto& o : outcomes) {
          EXPECT_TRUE(has(o, fmt::format("Mismatch: call 1: rank 0 sends {} elements to rank 1 in "
                                         "all_to_all(float32[",
                                         count)) &&
                      has(o, fmt::format("but rank 1 expects {} from it in all_to_all(float32[",
                                         count + 4)))
              << o;
          EXPECT_TRUE(has(o, "desync_test.cc:")) << o;
        }
    }
}

TEST(comm_local_desync, gather_and_scatter_with_another_root_or_count_are_a_mismatch) {
  for (Collective op : {Collective::gather, Collective::scatter})
    for (bool root : {true, false}) {
      auto outcomes = as_threads(2, [op, root](Engine& e) {
        std::vector<float> in(64), out(64);
        const bool wrong = e.rank() == 1;
        e.run({.op = op,
               .dtype = DType::f32,
               .root = wrong && root ? 1 : 0,
               .in = in.data(),
               .out = out.data(),
               .count = wrong && !root ? size_t{9} : size_t{8},
               .site = CallSite::here()});
      });
      for (auto& o : outcomes)
        EXPECT_TRUE(has(o, fmt::format("rank 0 called {}(float32[8], root 0) at ", name_of(op))))
            << o;
    }
}

TEST(comm_local_desync, a_rank_that_left_in_order_is_named_with_its_last_call) {
  auto outcomes = as_processes(2, [](Engine& e) {
    float v[4] = {};
    for (int i = 0; i < (e.rank() == 1 ? 57 : 58); ++i) e.run(reduce_of(v, 4));
  });
  EXPECT_TRUE(has(outcomes[0],
                  "Mismatch: rank 1 left after call 57 while rank 0 waits in call 58, "
                  "all_reduce(float32[4], sum) at "))
      << outcomes[0];
  EXPECT_EQ(outcomes[1], "");
}

TEST(comm_local_desync, a_killed_process_is_peer_lost_on_every_survivor_within_seconds) {
  auto begin = Clock::now();
  auto outcomes = as_processes(3, [](Engine& e) {
    std::vector<float> v(100000);
    for (int i = 0; i < 5; ++i) e.run(reduce_of(v.data(), v.size()));
    if (e.rank() == 1) ::raise(SIGKILL);
    e.run(reduce_of(v.data(), v.size()));
  });
  EXPECT_EQ(outcomes[1], "signal 9");
  for (int r : {0, 2}) {
    const auto& o = outcomes[size_t(r)];
    EXPECT_TRUE(has(o, "PeerLost: rank 1 (pid ")) << o;
    EXPECT_TRUE(has(o, "rank 1 (pid ") &&
                has(o, "its last call was number 5, all_reduce(float32[100000], sum)"))
        << o;
  }
  EXPECT_LT(seconds_since(begin), 15.0);  // promised: 5 s
}

TEST(comm_local_desync, a_thread_that_throws_is_peer_lost_with_its_reason) {
  auto outcomes = as_threads(3, [](Engine& e) {
    std::vector<float> v(100000);
    e.run(reduce_of(v.data(), v.size()));
    if (e.rank() == 2) throw NumericError("loss is nan");
    e.run(reduce_of(v.data(), v.size()));
  });
  EXPECT_EQ(outcomes[2], "NumericError: loss is nan");
  for (int r : {0, 1})
    EXPECT_TRUE(has(outcomes[size_t(r)], "PeerLost: rank ") &&
                has(outcomes[size_t(r)], "loss is nan"))
        << outcomes[size_t(r)];
}

TEST(comm_local_desync, a_rank_that_does_not_come_is_named_by_the_timeout) {
  auto outcomes = as_threads(
      3,
      [](Engine& e) {
        float v = 0;
        e.run(reduce_of(&v, 1));
        if (e.rank() == 1) {
          // Stuck in its own code until the others have given up.
          while (e.host().control(0)->state.load() == RankState::alive) ::usleep(1000);
          return;
        }
        e.run(reduce_of(&v, 1));
      },
      std::chrono::milliseconds(300));
  EXPECT_TRUE(has(outcomes[0] + outcomes[2], "Timeout: call 2, all_reduce(float32[1], sum) at "))
      << outcomes[0];
  EXPECT_TRUE(has(outcomes[0] + outcomes[2], "rank 1 did not arrive within ")) << outcomes[0];
  EXPECT_TRUE(has(outcomes[0] + outcomes[2],
                  "rank 1: its last call was number 1, all_reduce(float32[1], sum)"))
      << outcomes[0];
}

TEST(comm_local_desync, a_stopped_process_is_a_timeout_not_a_loss) {
  Processes ranks(
      2,
      [](Engine& e) {
        float v = 0;
        e.run(reduce_of(&v, 1));
        if (e.rank() == 1) ::raise(SIGSTOP);
        for (int i = 0; i < 2; ++i) e.run(reduce_of(&v, 1));
      },
      std::chrono::milliseconds(500));
  int status = 0;
  ASSERT_EQ(::waitpid(ranks.pid(1), &status, WUNTRACED), ranks.pid(1));
  ASSERT_TRUE(WIFSTOPPED(status));
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(0)), &info, WEXITED | WNOWAIT),
            0);  // rank 0 gave up
  ::kill(ranks.pid(1), SIGCONT);
  auto outcomes = ranks.wait();
  EXPECT_TRUE(has(outcomes[0], "Timeout: call 2") && has(outcomes[0], "rank 1 did not arrive"))
      << outcomes[0];
  EXPECT_TRUE(has(outcomes[1], "rank 0")) << outcomes[1];
}

// Everybody came, and nobody is through.
TEST(comm_local_desync, a_process_stopped_in_its_data_phase_is_the_one_that_is_named) {
  constexpr size_t kCount = size_t{4} << 20;  // of ordinary memory: many segments
  Processes ranks(
      3,
      [](Engine& e) {
        std::vector<float> v(kCount, 1);
        e.run(reduce_of(v.data(), 1));
        const Ticket ticket = e.post(reduce_of(v.data(), kCount));
        if (e.rank() == 1) ::raise(SIGSTOP);
        e.wait(ticket, Deadline::after(std::chrono::milliseconds(700)));
      },
      std::chrono::milliseconds(700));
  int status = 0;
  ASSERT_EQ(::waitpid(ranks.pid(1), &status, WUNTRACED), ranks.pid(1));
  ASSERT_TRUE(WIFSTOPPED(status));
  for (int r : {0, 2}) {
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(r)), &info, WEXITED | WNOWAIT), 0);
  }
  ::kill(ranks.pid(1), SIGCONT);
  const auto outcomes = ranks.wait();
  for (int r : {0, 2})
    EXPECT_TRUE(has(outcomes[static_cast<size_t>(r)], "Timeout: call 2, ") &&
                has(outcomes[static_cast<size_t>(r)], ": rank 1 did not get through within "))
        << outcomes[static_cast<size_t>(r)];
}

TEST(comm_local_desync, after_a_failure_every_later_call_throws_the_same) {
  auto outcomes = as_threads(2, [](Engine& e) {
    float v[2] = {};
    std::string first = outcome_of([&] { e.run(reduce_of(v, e.rank() == 0 ? 1 : 2)); });
    std::string second = outcome_of([&] { e.run(reduce_of(v, 1)); });
    check<Error>(has(first, "Mismatch") && first == second, "first: {} second: {}", first, second);
  });
  for (auto& o : outcomes) EXPECT_EQ(o, "");
}

TEST(comm_local_desync, recv_of_another_dtype_or_count_is_a_mismatch) {
  auto outcomes = as_threads(2, [](Engine& e) {
    std::vector<int> v(4);
    if (e.rank() == 0)
      e.run({.op = Collective::send,
             .dtype = DType::i32,
             .root = 1,
             .in = v.data(),
             .count = 4,
             .site = CallSite::here()});
    else
      e.run({.op = Collective::recv,
             .dtype = DType::i32,
             .root = 0,
             .out = v.data(),
             .count = 3,
             .site = CallSite::here()});
  });
  EXPECT_TRUE(has(outcomes[1],
                  "Mismatch: rank 0 sent int32[4] with tag 0 to rank 1, which called "
                  "recv(int32[3], from rank 0)"))
      << outcomes[1];
}

}  // namespace desync_test
