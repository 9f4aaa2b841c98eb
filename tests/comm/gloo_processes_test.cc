// SPDX-License-Identifier: Apache-2.0
// What gloo's other ranks see when a process dies or stops.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tests/support/backends.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/comm/start/run.h"

namespace gloo_processes_test {

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::has;

namespace {

class comm_gloo_processes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!trireme::testing::present("gloo")) GTEST_SKIP() << "this build has no gloo";
  }
};

// A rank is this program again; it runs this test alone.
SpawnOptions as_processes(Duration timeout = 20s) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.timeout = timeout;
  o.backend = "gloo";
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  return o;
}

/// Ranks that die or stop on purpose write here what they saw; spawn() itself only tells of the
/// first.
struct Notes {
  PrivateFolder folder{"trireme-gloo"};
  // Ranks are this program again: they find the folder of the one that started them.
  Notes() {
    if (!std::getenv("TRIREME_TEST_NOTES"))
      ::setenv("TRIREME_TEST_NOTES", folder.path().c_str(), 1), mine = true;
  }
  ~Notes() {
    if (mine) ::unsetenv("TRIREME_TEST_NOTES");
  }
  static std::string file(int rank) {
    return std::string(std::getenv("TRIREME_TEST_NOTES")) + "/" + std::to_string(rank);
  }
  static void write(int rank, const std::string& text) { write_file_atomic(file(rank), text); }
  static std::string read(int rank) { return read_file(file(rank)); }
  bool mine = false;
};

/// What a call of a survivor threw, as "Kind: text"; before it "late, " after more than `seconds`.
void note_failure(Group& g, const std::function<void()>& f, double seconds = 15) {
  const auto start = Clock::now();
  std::string what = "nothing";
  try {
    f();
  } catch (const Error& e) {
    what = std::string(e.kind()) + ": " + e.what();
  }
  if (seconds_since(start) > seconds) what = "late, " + what;
  Notes::write(g.rank(), what);
}

/// Rank `dies` is killed while the others send to it and receive from it; what the others saw.
std::vector<std::string> killed_in_the_middle(int dies, CallSite site = CallSite::here()) {
  Notes notes;
  std::string seen;
  try {
    spawn(
        3,
        [dies](Group g) {
          at::Tensor big = at::ones({4 << 20});
          g.barrier();
          std::thread killer;
          if (g.rank() == dies)
            killer = std::thread([] {
              std::this_thread::sleep_for(50ms);
              ::raise(SIGKILL);
            });
          note_failure(g, [&] {
            for (;;) {
              g.all_reduce(big).wait();
              big.fill_(1);
            }
          });
        },
        as_processes(), site);
  } catch (const PeerLost& e) {
    seen = e.what();
  }
  EXPECT_TRUE(has(seen, "killed by signal 9")) << seen;
  std::vector<std::string> texts;
  for (int r = 0; r < 3; ++r)
    if (r != dies) texts.push_back(Notes::read(r));
  return texts;
}

}  // namespace

TEST_F(comm_gloo_processes, a_killed_process_is_a_peer_lost_on_every_survivor) {
  const auto texts = killed_in_the_middle(2);
  EXPECT_TRUE(has(texts[0], "PeerLost: rank 2 (pid ")) << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
}

// It serves the store, too.
TEST_F(comm_gloo_processes, a_killed_rank_0_is_a_peer_lost_on_every_survivor) {
  for (const auto& text : killed_in_the_middle(0)) EXPECT_TRUE(has(text, "PeerLost: ")) << text;
}

// Its address is known, so Gloo itself waits for it until the limit of its connecting.
TEST_F(comm_gloo_processes, a_rank_that_dies_while_a_group_connects_is_a_peer_lost_within_seconds) {
  Notes notes;
  try {
    spawn(
        4,
        [](Group g) {
          g.barrier();
          if (g.rank() == 1) set_failpoints("gloo.connect=kill");
          note_failure(
              g,
              [&] {
                g.new_group({0, 1, 2, 3}).barrier();
              },
              8);
        },
        as_processes(60s));
    FAIL() << "nothing thrown";
  } catch (const PeerLost&) {
  }
  for (int r : {0, 2, 3})
    EXPECT_TRUE(has(Notes::read(r), "PeerLost: rank 1 (pid ") && !has(Notes::read(r), "late"))
        << Notes::read(r);
}

TEST_F(comm_gloo_processes, a_rank_that_stops_while_a_group_connects_is_named_in_the_timeout) {
  Notes notes;
  try {
    spawn(
        3,
        [](Group g) {
          g.barrier();
          const pid_t me = ::getpid();
          pid_t waker = -1;
          if (g.rank() == 1) {
            // Once the others have given up: spawn() waits for all ranks.
            if ((waker = ::fork()) == 0) {
              const auto gave_up = [](int r) {
                return ::access(Notes::file(r).c_str(), F_OK) == 0;
              };
              for (int i = 0; i < 1500 && !(gave_up(0) && gave_up(2)); ++i) ::usleep(10000);
              ::kill(me, SIGCONT);
              ::_exit(0);
            }
            set_failpoints("gloo.connect=stop");
          }
          note_failure(g, [&] { g.new_group({0, 1, 2}).barrier(); });
          if (waker > 0) ::waitpid(waker, nullptr, 0);
        },
        as_processes(5s));
  } catch (const Error&) {
  }
  for (int r : {0, 2})
    // Whoever was connected to all waits in the barrier.
    EXPECT_TRUE(has(Notes::read(r), "Timeout: gloo: rank 1 did not connect within ") ||
                (has(Notes::read(r), "Timeout: call 1, barrier at ") &&
                 has(Notes::read(r), ": rank 1 did not arrive within ")))
        << Notes::read(r);
}

// Whoever waits for a rank that is alive, which waits for the dead one, is told as well.
TEST_F(comm_gloo_processes, who_waits_for_another_rank_than_the_dead_one_is_told_too) {
  Notes notes;
  try {
    spawn(
        3,
        [](Group g) {
          at::Tensor t = at::ones({10});
          g.barrier();
          if (g.rank() == 2) ::raise(SIGKILL);
          note_failure(g, [&] { g.recv(t, 1 - g.rank()).wait(); });
        },
        as_processes());
    FAIL() << "nothing thrown";
  } catch (const PeerLost&) {
  }
  EXPECT_TRUE(has(Notes::read(0), "PeerLost: rank 2 (pid ")) << Notes::read(0);
  EXPECT_EQ(Notes::read(0), Notes::read(1));
}

TEST_F(comm_gloo_processes, a_stopped_process_is_a_timeout_that_names_it) {
  Notes notes;
  try {
    spawn(
        3,
        [](Group g) {
          at::Tensor t = at::ones({1 << 20});
          g.all_reduce(t).wait();
          const pid_t me = ::getpid();
          if (g.rank() == 1) {
            // Somebody must wake it again: spawn() waits for all ranks.
            if (::fork() == 0) {
              ::usleep(2500000);
              ::kill(me, SIGCONT);
              ::_exit(0);
            }
            ::raise(SIGSTOP);
          }
          note_failure(g, [&] { g.all_reduce(t).wait(1s); });
          ::wait(nullptr);
        },
        as_processes());
  } catch (const PeerLost&) {
  }
  EXPECT_TRUE(has(Notes::read(0), "Timeout: call 2, all_reduce(float32[1048576], sum) at ") &&
              has(Notes::read(0), "rank 1 did not arrive within 1 s of rank "))
      << Notes::read(0);
  EXPECT_EQ(Notes::read(0), Notes::read(2));
}

}  // namespace gloo_processes_test
