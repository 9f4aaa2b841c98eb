// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>

#include "tests/comm/local/messages.h"
#include "tests/comm/local/oracle.h"

namespace p2p_faults_test {

// Messages that nobody sends, takes or takes as they are.
using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

TEST(comm_local_p2p_faults, a_wrong_count_is_named_on_both_ranks) {
  auto body = [](Engine& e) {
    std::vector<float> v(5000);
    Call c =
        e.rank() == 0 ? send_of(1, 7, v.data(), v.size()) : recv_of(0, 7, v.data(), v.size() - 1);
    c.dtype = DType::f32;
    e.run(c);
  };
  for (const Outcomes& outcomes : {as_threads(2, body), as_processes(2, body)})
    for (const std::string& o : outcomes) {
      EXPECT_TRUE(has(o,
                      "Mismatch: rank 0 sent float32[5000] with tag 7 to rank 1, which called "
                      "recv(float32[4999], from rank 0) at "))
          << o;
      EXPECT_TRUE(has(o, "with tag 7; it was sent at ") && has(o, "p2p_faults_test.cc:")) << o;
    }
}

TEST(comm_local_p2p_faults, a_small_message_of_a_rank_that_left_still_arrives) {
  auto body = [](Engine& e) {
    Bytes small = pattern(3000, 5), in(3000);
    if (e.rank() == 0) {
      e.run(send_of(1, 3, small.data(), small.size()));
      return;
    }
    const Deadline deadline = soon();
    while (e.host().control(0)->state.load() != RankState::left)
      check<Error>(!deadline.expired(), "rank 0 does not leave");
    e.run(recv_of(0, 3, in.data(), in.size()));
    check<Error>(in == small, "wrong bytes");
    const std::string o = outcome_of([&] { e.run(recv_of(0, 4, in.data(), 1)); });
    check<Error>(has(o,
                     "Mismatch: rank 0 left after call 0 while rank 1 waits in recv(uint8[1], "
                     "from rank 0) at ") &&
                     has(o, "with tag 4"),
                 "{}", o);
  };
  auto outcomes = as_threads(2, body);
  EXPECT_EQ(outcomes[0] + outcomes[1], "");
  outcomes = as_processes(2, body);
  EXPECT_EQ(outcomes[0] + outcomes[1], "");
}

TEST(comm_local_p2p_faults, leaving_with_a_large_send_under_way_is_a_failure) {
  auto body = [](Engine& e) {
    auto big = std::make_unique<Bytes>(100000);
    if (e.rank() == 0) {
      e.post(send_of(1, 3, big->data(), big->size()));
      e.leave();
      return;
    }
    const Deadline deadline = soon();
    while (e.host().control(0)->state.load() == RankState::alive ||
           e.host().control(0)->state.load() == RankState::absent)
      check<Error>(!deadline.expired(), "rank 0 does not leave");
    e.run(recv_of(0, 4, big->data(), 1));
  };
  for (const Outcomes& o : {as_threads(2, body), as_processes(2, body)}) {
    EXPECT_EQ(o[0], "");
    EXPECT_TRUE(has(o[1],
                    "PeerLost: rank 0 failed after call 0: it left while send(uint8[100000], "
                    "to rank 1) at ") &&
                has(o[1], "with tag 3 was under way"))
        << o[1];
  }
}

TEST(comm_local_p2p_faults, a_killed_peer_is_named_by_who_waits_for_it) {
  auto begin = Clock::now();
  auto outcomes = as_processes(4, [](Engine& e) {
    e.run({.op = Collective::barrier, .site = CallSite::here()});
    Bytes big(100000);
    if (e.rank() == 3) ::raise(SIGKILL);
    if (e.rank() == 0) e.run(recv_of(3, 5, big.data(), 10));
    if (e.rank() == 1) e.run(recv_of(kAnySource, 6, big.data(), 10));
    if (e.rank() == 2) e.run(send_of(3, 7, big.data(), big.size()));
  });
  EXPECT_EQ(outcomes[3], "signal 9");
  const char* waits[] = {"recv(uint8[10], from rank 3)", "recv(uint8[10], from any rank)",
                         "send(uint8[100000], to rank 3)"};
  for (size_t r = 0; r < 3; ++r) {
    // Rank 1 may hear first that another one raised; the facts are the same.
    EXPECT_TRUE(has(outcomes[r], "PeerLost: rank 3 (pid ")) << outcomes[r];
    EXPECT_TRUE(r == 1 ||
                (has(outcomes[r], waits[r]) && has(outcomes[r], fmt::format("with tag {}", 5 + r))))
        << outcomes[r];
    EXPECT_TRUE(has(outcomes[r], "p2p_faults_test.cc:")) << outcomes[r];
  }
  EXPECT_LT(seconds_since(begin), 15.0);  // promised: 5 s
}

TEST(comm_local_p2p_faults, a_sender_killed_while_it_copies_is_peer_lost) {
  // Rank 0 has claimed a block of rank 1's buffer and dies before it has copied it.
  auto outcomes = as_processes(2, [](Engine& e) {
    Buffers memory(e, true);
    const size_t n = 1 << 20;
    void* p = memory.take(Bytes(n));
    e.run({.op = Collective::barrier, .site = CallSite::here()});
    if (e.rank() == 0) {
      e.post(send_of(1, 2, p, n));
      Move& move = e.host().control(1)->channels[0].moves[0];
      while (move.next.fetch_add(1) == 0 && move.done.load() == 0) continue;
      ::raise(SIGKILL);
    }
    e.run(recv_of(0, 2, p, n));
  });
  EXPECT_EQ(outcomes[0], "signal 9");
  EXPECT_TRUE(has(outcomes[1], "PeerLost: rank 0 (pid ") && has(outcomes[1], "recv(uint8[1048576]"))
      << outcomes[1];
}

TEST(comm_local_p2p_faults, a_recv_of_any_source_outlives_a_rank_that_leaves) {
  auto body = [](Engine& e) {
    int v = 0;
    if (e.rank() == 1) return;
    if (e.rank() == 2) {
      const Deadline deadline = soon();
      while (e.host().control(1)->state.load() != RankState::left ||
             !e.host().control(0)->sleeping.load())
        check<Error>(!deadline.expired(), "nobody sleeps");
      ::usleep(150000);  // rank 0 looks at its peers ten times a second
      v = 42;
      e.run(send_of(0, 1, &v, sizeof v));
      return;
    }
    e.run(recv_of(kAnySource, 1, &v, sizeof v));
    check<Error>(v == 42, "{}", v);
    e.run(recv_of(kAnySource, 1, &v, sizeof v));
  };
  for (const Outcomes& o : {as_threads(3, body), as_processes(3, body)}) {
    EXPECT_EQ(o[1] + o[2], "");
    EXPECT_TRUE(has(o[0], "Mismatch: rank ") && has(o[0],
                                                    "left after call 0 while rank 0 waits in "
                                                    "recv(uint8[4], from any rank) at "))
        << o[0];
  }
}

TEST(comm_local_p2p_faults, a_thread_that_fails_while_it_is_read_waits_for_the_reader) {
  // Under a sanitizer this would show as a use after free.
  for (int round = 0; round < 20; ++round) {
    auto outcomes = as_threads(2, [round](Engine& e) {
      auto big = std::make_unique<Bytes>(4 << 20);
      if (e.rank() == 0) {
        const Ticket t = e.post(send_of(1, 0, big->data(), big->size()));
        for (int i = 0; i < round * 20; ++i) e.complete(t);
        e.fail_with("enough");
        big.reset();
        return;
      }
      for (int i = 0; i < 10; ++i) ::sched_yield();
      e.run(recv_of(0, 0, big->data(), big->size()));
    });
    EXPECT_EQ(outcomes[0], "");
    EXPECT_TRUE(outcomes[1].empty() ||
                has(outcomes[1], "PeerLost: rank 0 failed after call 0: enough"))
        << outcomes[1];
  }
}

TEST(comm_local_p2p_faults, a_timeout_names_tag_and_call_site) {
  for (int source : {1, kAnySource}) {
    auto outcomes = as_threads(
        2,
        [source](Engine& e) {
          int v = 0;
          if (e.rank() == 1) {
            while (e.host().control(0)->state.load() != RankState::failed) ::sched_yield();
            return;
          }
          e.run(send_of(1, 11, &v, sizeof v));
          e.run(recv_of(source, 12, &v, sizeof v));
        },
        std::chrono::milliseconds(250));
    EXPECT_TRUE(has(outcomes[0], source == 1 ? "Timeout: recv(uint8[4], from rank 1) at "
                                             : "Timeout: recv(uint8[4], from any rank) at ") &&
                has(outcomes[0], "p2p_faults_test.cc:") &&
                has(outcomes[0], "with tag 12 did not complete within ") &&
                has(outcomes[0], "rank 1: it has made no call yet"))
        << outcomes[0];
  }
}

TEST(comm_local_p2p_faults, oneself_is_not_a_peer) {
  for (int n : {1, 2})
    expect_clean(as_threads(n, [n](Engine& e) {
      int v = 0;
      EXPECT_THROW(e.post(send_of(e.rank(), 0, &v, sizeof v)), UsageError);
      EXPECT_THROW(e.post(recv_of(e.rank(), 0, &v, sizeof v)), UsageError);
      EXPECT_THROW(e.post(recv_of(n, 0, &v, sizeof v)), UsageError);
      EXPECT_THROW(e.post(send_of(kAnySource, 0, &v, sizeof v)), UsageError);
      if (n == 2) return;
      EXPECT_THROW(e.post(recv_of(kAnySource, 0, &v, sizeof v)), UsageError);
    }));
}

}  // namespace p2p_faults_test
