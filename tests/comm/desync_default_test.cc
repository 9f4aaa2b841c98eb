// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/backends.h"
#include "tests/support/desync_by_default.h"
#include "tests/support/ports.h"
#include "trireme/comm/desync/stall_watch.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/memory_store.h"

namespace desync_default_test {

// What users have who set no check (mpi: comm/mpi/ranks_test.cc).
using namespace trireme;
using namespace trireme::testing;

namespace {

Group make_by_default(const std::string& backend, int rank, int size, Store& store,
                      const std::string& name) {
  trireme::detail::BackendSpec spec;
  spec.rank = rank;
  spec.size = size;
  spec.timeout = std::chrono::seconds(120);
  spec.name = name;
  spec.store = std::make_shared<PrefixStore>(
      std::shared_ptr<Store>(store.clone(Deadline::after(std::chrono::seconds(60)))), name);
  return Group(trireme::detail::make_backend(backend, spec));
}

/// `body` on ranks that are processes of this test; it returns what is wrong.
void on_processes(int n, const std::string& backend,
                  const std::function<std::string(Group, const CapturedLog&, Store&)>& body,
                  CallSite site = CallSite::here()) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions options;
  options.timeout = std::chrono::seconds(120);
  options.backend = backend;
  options.env = [port = free_tcp_port()](int rank) -> std::vector<std::string> {
    return {"TRIREME_HOST_ID=" + std::to_string(rank / 2),
            "TRIREME_TEST_PORT=" + std::to_string(port)};
  };
  options.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  spawn(
      n,
      [&](Group g) {
        const CapturedLog log;
        ServerHandle server;
        std::shared_ptr<Store> store = open_store(
            read_rank_env(), std::string("tcp://127.0.0.1:") + std::getenv("TRIREME_TEST_PORT"),
            Deadline::after(std::chrono::seconds(60)), server);
        const std::string wrong = body(g, log, *store);
        trireme::check<Error>(wrong.empty(), "{}", wrong);
        g.barrier();
      },
      options, site);
}

/// The same on threads, with `backend`.
std::string on_threads(int n, const std::string& backend,
                       const std::function<std::string(Group, const CapturedLog&, Store&)>& body) {
  const CapturedLog log;
  MemoryStore store;
  std::mutex mutex;
  std::string wrong;
  run_threads(n,
              [&](Group g) {
                const std::string text = body(g, log, store);
                std::lock_guard lock(mutex);
                wrong += text;
              },
              {.timeout = std::chrono::seconds(120), .backend = backend});
  return wrong;
}

}  // namespace

TEST(comm_desync_default, every_wrong_program_on_gloo_ends_in_seconds_and_is_named) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  for (int n : {2, 3})
    EXPECT_EQ(on_threads(n, "local",
                         [](Group g, const CapturedLog& log, Store& store) {
                           return run_desync_by_default(
                               g, log,
                               [&](const std::string& name) {
                                 return make_by_default("gloo", g.rank(), g.size(), store, name);
                               },
                               true);
                         }),
              "");
}

// The ranks of a host compare the steps of a call, and name those.
TEST(comm_desync_default, every_wrong_program_on_hybrid_ends_in_seconds) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo to go across hosts with";
  on_processes(4, "local", [](Group g, const CapturedLog& log, Store& store) {
    return run_desync_by_default(
        g, log,
        [&](const std::string& name) {
          return make_by_default("hybrid", g.rank(), g.size(), store, name);
        },
        false);
  });
}

TEST(comm_desync_default, a_late_rank_of_local_is_reported_once_a_stall_and_left_alone) {
  EXPECT_EQ(on_threads(3, "local",
                       [](Group g, const CapturedLog& log, Store&) {
                         return expect_a_late_rank_is_reported(g, log);
                       }),
            "");
}
TEST(comm_desync_default, a_late_rank_of_gloo_is_reported_once_a_stall_and_left_alone) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  EXPECT_EQ(on_threads(3, "gloo",
                       [](Group g, const CapturedLog& log, Store&) {
                         return expect_a_late_rank_is_reported(g, log);
                       }),
            "");
}
TEST(comm_desync_default, a_late_rank_of_hybrid_is_reported_once_a_stall_and_left_alone) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo to go across hosts with";
  on_processes(4, "hybrid", [](Group g, const CapturedLog& log, Store&) {
    return expect_a_late_rank_is_reported(g, log);
  });
}

TEST(comm_desync_default, a_message_of_another_count_is_named_at_both_ends) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  std::mutex mutex;
  std::vector<std::string> told;
  try {
    run_threads(2,
                [&](Group g) {
                  try {
                    if (g.rank() == 0)
                      g.send(at::ones({100}), 1, 5).wait();
                    else
                      g.recv(at::ones({99}), 0, 5).wait();
                  } catch (const Mismatch& e) {
                    std::lock_guard lock(mutex);
                    told.push_back(e.what());
                    throw;
                  }
                },
                {.timeout = std::chrono::seconds(60), .backend = "gloo"});
    FAIL() << "nothing was raised";
  } catch (const Mismatch&) {
  }
  ASSERT_EQ(told.size(), 2u);
  for (const std::string& text : told)
    for (const char* part : {"rank 0 is in send(float32[100], to rank 1)",
                             "rank 1 is in recv(float32[99], from rank 0)", "with tag 5"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Each thread's calls are in order; seen together the ranks wait for each other.
TEST(comm_desync_default, ranks_of_two_threads_are_reported_and_left_alone) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  std::string wrong = on_threads(2, "gloo", [](Group g, const CapturedLog&, Store&) {
    Group a = g.new_group({0, 1}), b = g.new_group({0, 1});
    std::vector<std::thread> threads;
    std::vector<std::string> texts(2);
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        try {
          Group& mine = i ? b : a;
          mine.barrier();
          if (static_cast<int>(i) == g.rank())
            std::this_thread::sleep_for(std::chrono::milliseconds(4000));
          mine.all_reduce(at::ones(4)).wait();
        } catch (const Error& e) {
          texts[i] = e.what();
        }
      });
    for (auto& t : threads) t.join();
    return texts[0] + texts[1];
  });
  EXPECT_EQ(wrong, "");
}

// ---- the watch by itself

namespace {

using trireme::detail::GroupCalls;
using trireme::detail::RecentCalls;
using trireme::detail::StallWatch;

/// Two ranks that made these calls in one group leave it; what is logged.
std::vector<std::string> after_leaving(const RecentCalls& first, const RecentCalls& second) {
  const CapturedLog log;
  auto store = std::make_shared<MemoryStore>();
  int rank = 0;
  for (const RecentCalls& calls : {first, second}) {
    StallWatch watch(trireme::detail::lazy_store_board(
        std::shared_ptr<Store>(store->clone(Deadline::never())), "world", rank++, 2));
    watch.join(&watch, {"world", [] { return GroupCalls{}; }, [] { return std::thread::id(); },
                        [](const std::string&) {}});
    watch.leave(&watch, true, calls);
  }
  return log.lines();
}

}  // namespace

// Two roots that both send: nobody waits, and the numbers are wrong.
TEST(comm_desync_default, a_call_that_differed_and_made_nobody_wait_is_named_when_the_group_ends) {
  const RecentCalls zero{2, {11, 12}, {"all_reduce(a)", "broadcast(b, root 0)"}},
      one{2, {11, 22}, {"all_reduce(a)", "broadcast(b, root 1)"}},
      longer{3, {11, 12, 13}, {"all_reduce(a)", "broadcast(b, root 0)", "barrier"}};
  EXPECT_TRUE(after_leaving(zero, zero).empty());
  const auto lines = after_leaving(zero, one);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(
      lines[0].find("group world ended, and its ranks called different things: call 2: rank 0 "
                    "called broadcast(b, root 0), but rank 1 called broadcast(b, root 1)"),
      std::string::npos)
      << lines[0];
  const auto more = after_leaving(zero, longer);
  ASSERT_EQ(more.size(), 1u);
  EXPECT_NE(more[0].find("rank 0 made 2 collectives, but rank 1 made 3"), std::string::npos)
      << more[0];
}

}  // namespace desync_default_test
