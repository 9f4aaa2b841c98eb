// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/comm/local/groups.h"

namespace deadlock_test {

// Ranks that are late are not ranks that wait for each other.
using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

Call reduce_of(float* p, size_t n, CallSite at = CallSite::here()) {
  return {
      .op = Collective::all_reduce, .dtype = DType::f32, .in = p, .out = p, .count = n, .site = at};
}
Call barrier(CallSite at = CallSite::here()) { return {.op = Collective::barrier, .site = at}; }
Call message(Collective op, int peer, std::vector<float>& v, CallSite at = CallSite::here()) {
  return {.op = op,
          .dtype = DType::f32,
          .root = peer,
          .in = v.data(),
          .out = v.data(),
          .count = v.size(),
          .site = at};
}

constexpr auto kLong = std::chrono::milliseconds(1700);

void expect_clean(const std::vector<Ended>& ended) {
  for (size_t r = 0; r < ended.size(); ++r) EXPECT_EQ(ended[r].what, "") << "rank " << r;
}

}  // namespace

// Each of these keeps ranks waiting for well over the second after which they look for circles.
TEST(comm_local_deadlock, ranks_that_are_merely_late_raise_no_alarm) {
  std::vector<std::function<void()>> runs;
  // A chain: 0 waits for 1, 1 in another group for 2, and 2 computes.
  runs.push_back([] {
    expect_clean(worlds_as_threads(3, [](World& w) {
      Engine* left = w.rank() < 2 ? &w.group("world/1", {0, 1}) : nullptr;
      Engine* right = w.rank() > 0 ? &w.group("world/2", {1, 2}) : nullptr;
      if (w.rank() == 2) std::this_thread::sleep_for(kLong);
      if (right) right->run(barrier());
      if (left) left->run(barrier());
      w.all->run(barrier());
    }));
  });
  // Sends and recvs that are still to be posted.
  runs.push_back([] {
    expect_clean(worlds_as_threads(2, [](World& w) {
      std::vector<float> a(4), b(300000);
      if (w.rank() == 0) {
        w.all->run(message(Collective::recv, 1, a));
        w.all->run(message(Collective::send, 1, b));
      } else {
        std::this_thread::sleep_for(kLong);
        w.all->run(message(Collective::send, 0, a));
        std::this_thread::sleep_for(kLong);
        w.all->run(message(Collective::recv, 0, b));
      }
    }));
  });
  // A rank that is further ahead than there are slots: its call is posted, but not published yet,
  // because a third one is late.
  runs.push_back([] {
    expect_clean(worlds_as_threads(3, [](World& w) {
      Engine& all = w.group("world/1", {0, 1, 2});
      Engine* pair = w.rank() < 2 ? &w.group("world/2", {0, 1}) : nullptr;
      if (w.rank() == 2) std::this_thread::sleep_for(kLong);
      std::vector<float> v(40);
      std::vector<Ticket> tickets;
      for (int i = 0; i < 40; ++i) tickets.push_back(all.post(reduce_of(&v[size_t(i)], 1)));
      if (w.rank() == 1) pair->run(barrier());  // before it waits for what rank 0 waits for
      for (const Ticket& t : tickets) all.wait(t, Deadline::after(std::chrono::seconds(20)));
      if (w.rank() == 0) pair->run(barrier());
    }));
  });
  // Both wait in other groups than the other, but had posted what is needed.
  runs.push_back([] {
    expect_clean(worlds_as_threads(3, [](World& w) {
      Engine &a = w.group("world/1", {0, 1, 2}), &b = w.group("world/2", {0, 1, 2});
      if (w.rank() == 2) std::this_thread::sleep_for(kLong);
      float x = 1, y = 1;
      const Ticket ta = a.post(reduce_of(&x, 1)), tb = b.post(reduce_of(&y, 1));
      const Deadline until = Deadline::after(std::chrono::seconds(20));
      if (w.rank() == 0) a.wait(ta, until), b.wait(tb, until);
      if (w.rank() != 0) b.wait(tb, until), a.wait(ta, until);
    }));
  });
  // Any source: whoever comes.
  runs.push_back([] {
    expect_clean(worlds_as_threads(3, [](World& w) {
      std::vector<float> v(4);
      if (w.rank() == 0) {
        w.all->run(message(Collective::recv, kAnySource, v));
        w.all->run(barrier());
        return;
      }
      if (w.rank() == 2) {
        std::this_thread::sleep_for(kLong);
        w.all->run(message(Collective::send, 0, v));
      }
      w.all->run(barrier());  // rank 1 waits for rank 0 all the while
    }));
  });
  std::vector<std::thread> threads;
  for (auto& run : runs) threads.emplace_back(run);
  for (auto& t : threads) t.join();
}

TEST(comm_local_deadlock, ranks_outside_the_circle_learn_of_it) {
  const auto ended = worlds_as_threads(3, [](World& w) {
    Engine& a = w.group("world/1", {0, 1, 2});
    Engine* b = w.rank() < 2 ? &w.group("world/2", {0, 1}) : nullptr;
    if (w.rank() == 1) b->run(barrier());
    a.run(barrier());
    if (b) b->run(barrier());
  });
  for (const Ended& e : ended) {
    EXPECT_NE(e.what.find("Mismatch: ranks wait for each other: rank 0 is in call 1 of group "
                          "world/1, barrier at "),
              std::string::npos)
        << e.what;
    EXPECT_NE(e.what.find("rank 1 is in call 1 of group world/2, barrier at "), std::string::npos)
        << e.what;
    EXPECT_LT(e.after, 4);
  }
}

// A rank that is stopped makes no more rounds: nobody can tell what it would do next.
TEST(comm_local_deadlock, a_stopped_rank_of_a_circle_is_a_timeout) {
  Processes ranks(
      2,
      [](Engine& e) {
        std::vector<float> v(4);
        const Ticket t = e.post(message(Collective::recv, 1 - e.rank(), v));
        std::thread stopper;
        if (e.rank() == 1)
          stopper = std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            ::raise(SIGSTOP);
          });
        const std::string what =
            outcome_of([&] { e.wait(t, Deadline::after(std::chrono::milliseconds(1900))); });
        if (stopper.joinable()) stopper.join();
        throw Error(what);
      },
      std::chrono::seconds(20));
  int status = 0;
  ASSERT_EQ(::waitpid(ranks.pid(1), &status, WUNTRACED), ranks.pid(1));
  ASSERT_TRUE(WIFSTOPPED(status));
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(0)), &info, WEXITED | WNOWAIT), 0);
  ::kill(ranks.pid(1), SIGCONT);
  for (const std::string& o : ranks.wait()) EXPECT_EQ(o.rfind("Error: Timeout: ", 0), 0u) << o;
}

TEST(comm_local_deadlock, after_one_the_world_can_be_used_and_found_waiting_again) {
  const auto ended = worlds_as_threads(2, [](World& w) {
    for (int round = 0; round < 2; ++round) {
      Engine &a = w.group("world/a" + std::to_string(round), {0, 1}),
             &b = w.group("world/b" + std::to_string(round), {0, 1});
      const std::string what = outcome_of([&] { (w.rank() ? a : b).run(barrier()); });
      check<Error>(what.find("of group world/a" + std::to_string(round)) != std::string::npos,
                   "round {}: '{}'", round, what);
      w.all->run(barrier());
    }
  });
  expect_clean(ended);
}

// Only rank 2 is late. Rank 0, which has no group with it, hears of it all the same.
TEST(comm_local_deadlock, a_timeout_says_behind_whom_a_late_rank_waits_itself) {
  std::atomic<int> given_up{0};
  const auto ended = worlds_as_threads(3, [&](World& w) {
    Engine* left = w.rank() < 2 ? &w.group("world/1", {0, 1}) : nullptr;
    Engine* right = w.rank() > 0 ? &w.group("world/2", {1, 2}) : nullptr;
    if (w.rank() == 2) {
      while (given_up < 2) std::this_thread::yield();
      return;
    }
    Engine& waits = w.rank() == 0 ? *left : *right;
    std::vector<float> v(4);
    const Ticket t =
        w.rank() == 0 ? waits.post(message(Collective::recv, 1, v)) : waits.post(barrier());
    const std::chrono::milliseconds patience(w.rank() == 0 ? 1500 : 2500);
    const std::string said = outcome_of([&] { waits.wait(t, Deadline::after(patience)); });
    ++given_up;
    throw Error(said);
  });
  EXPECT_NE(ended[0].what.find("recv(float32[4], from rank 1)"), std::string::npos)
      << ended[0].what;
  EXPECT_NE(ended[0].what.find("within 1.5 s of rank 0 (rank 1: it has made no call yet, and waits "
                               "for rank 2). Such a rank is stopped"),
            std::string::npos)
      << ended[0].what;
  // By the ranks' numbers in the world: in that group they are 0 and 1.
  EXPECT_NE(ended[1].what.find("rank 2 did not arrive within 2.5 s of rank 1 (rank 2: it has made "
                               "no call yet). Such a rank is stopped"),
            std::string::npos)
      << ended[1].what;
}

}  // namespace deadlock_test
