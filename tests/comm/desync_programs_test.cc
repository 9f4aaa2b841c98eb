// SPDX-License-Identifier: Apache-2.0
#include "tests/support/desync_programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "tests/support/backends.h"
#include "tests/support/ports.h"
#include "tests/support/processes.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/rendezvous.h"
#include "trireme/store/memory_store.h"

namespace desync_programs_test {

// The same wrong programs on backends with check=each (mpi: comm/mpi/ranks_test.cc).
using namespace trireme;
using namespace trireme::testing;

namespace {

std::string run_on(const std::string& backend, int rank, int size,
                   const std::shared_ptr<Store>& store) {
  return run_desync_programs(rank, size, [&](const DesyncProgram& p) {
    trireme::detail::BackendSpec spec;
    spec.rank = rank;
    spec.size = size;
    spec.timeout = std::chrono::seconds(20);
    spec.check = "each";
    spec.store = std::make_shared<PrefixStore>(store, p.name);
    return Group(trireme::detail::make_backend(backend, spec));
  });
}

}  // namespace

TEST(comm_desync_programs, there_is_one_for_each_of_more_than_thirty_kinds) {
  EXPECT_GE(desync_programs().size(), 30u);
  for (const DesyncProgram& p : desync_programs()) EXPECT_FALSE(p.named.empty()) << p.name;
}

TEST(comm_desync_programs, every_one_raises_on_all_ranks_of_gloo) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  for (int n : {2, 3}) {
    std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
    std::vector<std::string> wrong(static_cast<size_t>(n));
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r)
      ranks.emplace_back([&, r] {
        std::shared_ptr<Store> own = store->clone(Deadline::never());
        wrong[static_cast<size_t>(r)] = run_on("gloo", r, n, own);
      });
    for (auto& t : ranks) t.join();
    for (const std::string& text : wrong) EXPECT_EQ(text, "");
  }
}

// Two hosts of two ranks each; across them it is gloo.
TEST(comm_desync_programs, every_one_raises_on_all_ranks_of_hybrid) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo to go across hosts with";
  SpawnOptions options;
  options.timeout = std::chrono::seconds(60);
  options.env = [port = free_tcp_port()](int rank) -> std::vector<std::string> {
    return {"TRIREME_HOST_ID=" + std::to_string(rank / 2),
            "TRIREME_TEST_PORT=" + std::to_string(port)};
  };
  options.args = {"--gtest_filter=comm_desync_programs.every_one_raises_on_all_ranks_of_hybrid"};
  spawn(
      4,
      [](Group g) {
        ServerHandle server;
        std::shared_ptr<Store> store = open_store(
            read_rank_env(), std::string("tcp://127.0.0.1:") + std::getenv("TRIREME_TEST_PORT"),
            Deadline::after(std::chrono::seconds(60)), server);
        const std::string wrong = run_on("hybrid", g.rank(), g.size(), store);
        trireme::check<Error>(wrong.empty(), "{}", wrong);
        g.barrier();
      },
      options);
}

namespace {

/// A right program of two ranks of gloo with check=each; the store is where they say what they wait
/// in.
void expect_left_alone(const std::function<void(Group, Store&)>& body) {
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  std::vector<std::string> wrong(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      trireme::detail::BackendSpec spec;
      spec.rank = r;
      spec.size = 2;
      spec.timeout = std::chrono::seconds(20);
      spec.check = "each";
      spec.store = store->clone(Deadline::never());
      try {
        body(Group(trireme::detail::make_backend("gloo", spec)), *spec.store);
      } catch (const std::exception& e) {
        wrong[static_cast<size_t>(r)] = e.what();
      }
    });
  for (auto& t : ranks) t.join();
  EXPECT_EQ(wrong[0] + wrong[1], "");
}

/// Until a rank has said, once more, what it waits in; it looks for a circle then.
void be_late_for(Store& store, int rank, std::string& said) {
  const auto heard = [&] {
    return store.try_get("waits/world/" + std::to_string(rank)).value_or("");
  };
  trireme::check<Error>(eventually([&] { return heard() != said; }), "rank {} does not wait", rank);
  said = heard();
}

}  // namespace

TEST(comm_desync_programs, ranks_that_are_merely_late_are_left_alone) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  expect_left_alone([](Group g, Store& store) {
    Group other = g.new_group({1, 0});
    Work got;
    std::string said;
    at::Tensor in = at::zeros({3});
    if (g.rank() == 0) {
      got = g.irecv(in, 1, 3);
      other.all_reduce(at::ones(4)).wait();  // rank 1 comes later
      got.wait();                            // and sends later still
    } else {
      be_late_for(store, 0, said);
      other.all_reduce(at::ones(4)).wait();
      be_late_for(store, 0, said);
      g.send(at::ones(3), 0, 3).wait();
    }
    g.barrier();
  });
}

// Each thread's calls are in order; seen together the ranks wait for each other.
TEST(comm_desync_programs, ranks_of_two_threads_are_left_alone) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  expect_left_alone([](Group g, Store&) {
    Group a = g.new_group({0, 1}), b = g.new_group({0, 1});
    std::vector<std::thread> threads;
    std::vector<std::string> wrong(2);
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        try {
          Group& mine = i ? b : a;
          mine.barrier();
          // Others look after a second; such ranks say nothing by which one could tell that they
          // do.
          if (static_cast<int>(i) == g.rank())
            std::this_thread::sleep_for(std::chrono::milliseconds(1400));
          mine.all_reduce(at::ones(4)).wait();
        } catch (const Error& e) {
          wrong[i] = e.what();
        }
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(wrong[0] + wrong[1], "");
  });
}

TEST(comm_desync_programs, a_timeout_of_check_each_names_the_call_and_who_did_not_come) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no gloo";
  std::mutex mutex;
  std::condition_variable raised;
  int ended = 0;
  const auto body = [&](Group g) {
    if (g.rank() == 1) {  // it computes, and computes
      std::unique_lock lock(mutex);
      raised.wait(lock, [&] { return ended == 2; });
      return;
    }
    try {
      g.all_reduce(at::ones(4)).wait();
      ADD_FAILURE() << "nothing was raised";
    } catch (const Timeout& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("call 1 of group world, all_reduce(float32[4], sum) at tests/"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("rank 1 did not come within 0."), std::string::npos) << text;
    }
    std::lock_guard lock(mutex);
    ++ended;
    raised.notify_all();
  };
  run_threads(3, body,
              {.timeout = std::chrono::milliseconds(600), .backend = "gloo", .check = "each"});
}

}  // namespace desync_programs_test
