// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"

namespace trireme::rpc_calls_test {
namespace {

using namespace rpc_test;
using rpc::Future;

struct Sample {
  int64_t id = 0;
  std::vector<float> values;
  std::map<std::string, std::optional<double>> notes;
  bool operator==(const Sample&) const = default;
  TRIREME_FIELDS(id, values, notes)
};

double add(double a, double b) { return a + b; }
void nothing() {}
std::string who_calls(rpc::Call& call, const std::string& greeting) {
  return greeting + " " + call.caller() + " of " + call.method();
}
Sample doubled(Sample sample) {
  sample.id *= 2;
  for (float& value : sample.values) value *= 2;
  return sample;
}

TRIREME_REMOTE(add_remote, add);
TRIREME_REMOTE(nothing_remote, &nothing);
TRIREME_REMOTE(who_calls_remote, who_calls);
TRIREME_REMOTE(doubled_remote, doubled);
TRIREME_REMOTE(squared, [](int x) noexcept { return x * x; });

struct Table {
  std::vector<double> rows = std::vector<double>(10, 1.5);
  mutable std::mutex mutex;
  double pull(const std::vector<int64_t>& ids) const {
    std::lock_guard lock(mutex);
    double sum = 0;
    for (const int64_t id : ids) sum += rows.at(static_cast<size_t>(id));
    return sum;
  }
  void push(int64_t id, double by) {
    std::lock_guard lock(mutex);
    rows.at(static_cast<size_t>(id)) += by;
  }
};
TRIREME_REMOTE(pull, &Table::pull);
TRIREME_REMOTE(push, &Table::push);

// A wrong call does not compile.
template <class M, class... A>
concept Compiles = requires(const rpc::Peer& peer, A... arguments) {
  peer.async<M>(arguments...);
};
static_assert(Compiles<add_remote, double, double>);
static_assert(Compiles<add_remote, int, float>);
static_assert(!Compiles<add_remote, double>);
static_assert(!Compiles<add_remote, double, double, double>);
static_assert(!Compiles<add_remote, double, std::string>);
static_assert(Compiles<who_calls_remote, const char*>);
static_assert(!Compiles<who_calls_remote, int>);
static_assert(!Compiles<pull, std::vector<std::string>>);
static_assert(std::is_same_v<rpc::detail::ResultOf<pull>, double>);

// What cannot travel is told by the same checks that TRIREME_REMOTE makes.
static_assert(!rpc::detail::can_be_parameter<int&>());
static_assert(!rpc::detail::can_be_parameter<int*>());
static_assert(!rpc::detail::can_be_parameter<std::vector<std::thread>>());
static_assert(!rpc::detail::can_be_parameter<long double>());
static_assert(!rpc::detail::can_be_parameter<std::string_view>());
static_assert(rpc::detail::can_be_parameter<const std::string&>());
static_assert(rpc::detail::can_be_parameter<Sample&&>());

// Another program's.
namespace elsewhere {
TRIREME_REMOTE(add_remote, [](std::string a) { return a; });
TRIREME_REMOTE(unknown, nothing);
}  // namespace elsewhere

class rpc_calls : public ::testing::Test {
 protected:
  Job job{300us, 7};
  std::shared_ptr<Table> table = std::make_shared<Table>();
  rpc::Worker server = job.start(
      "server0",
      {rpc::offer<add_remote, nothing_remote, who_calls_remote, doubled_remote, squared>(),
       rpc::offer<pull, push>(table)});
  rpc::Worker me = job.start("trainer0");
  rpc::Peer peer = me.peer("server0");
};

}  // namespace

TEST_F(rpc_calls, return_what_their_functions_return) {
  EXPECT_EQ(peer.async<add_remote>(1.5, 2).get(), 3.5);
  EXPECT_EQ(peer.sync<squared>(-7), 49);
  EXPECT_NO_THROW(peer.sync<nothing_remote>());
  const Sample sample{21, {0.5f, -2}, {{"a", 1.0}, {"b", std::nullopt}}};
  EXPECT_EQ(peer.sync<doubled_remote>(sample), (Sample{42, {1, -4}, sample.notes}));
}

TEST_F(rpc_calls, may_know_who_called) {
  EXPECT_EQ(peer.sync<who_calls_remote>("hello"), "hello trainer0 of who_calls_remote");
}

TEST_F(rpc_calls, of_members_reach_the_object_that_was_offered) {
  peer.sync<push>(3, 2.5);
  EXPECT_EQ(table->rows[3], 4.0);
  EXPECT_EQ(peer.sync<pull>(std::vector<int64_t>{3, 4}), 5.5);
}

TEST_F(rpc_calls, go_both_ways_over_one_channel) {
  auto other = job.start("trainer1", {rpc::offer<squared>()});
  EXPECT_EQ(other.peer("server0").sync<squared>(2), 4);
  EXPECT_EQ(server.peer("trainer1").sync<squared>(3), 9);
}

TEST_F(rpc_calls, to_oneself_are_calls_like_others) {
  const rpc::Peer self = server.peer("server0");
  EXPECT_EQ(self.sync<squared>(5), 25);
  EXPECT_EQ(self.sync<who_calls_remote>("hi"), "hi server0 of who_calls_remote");
  EXPECT_THROW(self.sync<pull>(std::vector<int64_t>{99}), rpc::RemoteError);
  EXPECT_THROW(me.peer("trainer0").sync<squared>(5), UsageError) << "it offers nothing";
}

TEST_F(rpc_calls, find_workers_by_rank_too) {
  auto options = job.options("ranked", {rpc::offer<squared>()});
  options.rank = 3;
  auto ranked = rpc::init(options);
  EXPECT_EQ(me.peer(3).sync<squared>(4), 16);
  EXPECT_EQ(me.peer(3).name(), "ranked");
  EXPECT_EQ(ranked.peer(3).sync<squared>(4), 16);
  EXPECT_NE(text_of<Timeout>([&] { me.peer(4, {.deadline = 20ms}); }).find("of rank 4"),
            std::string::npos);
}

TEST_F(rpc_calls, wait_for_a_worker_that_comes_later) {
  std::optional<rpc::Worker> worker;
  std::thread late([&] { worker = job.start("late", {rpc::offer<squared>()}); });
  EXPECT_NO_THROW(EXPECT_EQ(me.peer("late").sync<squared>(3), 9));
  late.join();
  const auto text = text_of<Timeout>([&] { me.peer("never", {.deadline = 20ms}); });
  EXPECT_NE(text.find("no worker 'never'"), text.npos) << text;
  EXPECT_NE(text.find("'server0', 'trainer0'"), text.npos) << text;
}

TEST_F(rpc_calls, a_thousand_that_are_outstanding_are_all_answered) {
  std::vector<Future<double>> futures;
  for (int i = 0; i < 1000; ++i) futures.push_back(peer.async<add_remote>(i, 0.5));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(futures[static_cast<size_t>(i)].get(), i + 0.5);
  EXPECT_LE(server.threads(), 6);
  EXPECT_LE(me.threads(), 6);
}

TEST_F(rpc_calls, of_many_threads_and_workers_at_once_get_their_own_answers) {
  auto other = job.start("trainer1");
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const rpc::Peer mine = (t % 2 ? me : other).peer("server0");
      for (int i = 0; i < 50; ++i) {
        auto later = mine.async<squared>(t);
        EXPECT_EQ(mine.sync<add_remote>(t, i), t + i);
        EXPECT_EQ(later.get(), t * t);
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST_F(rpc_calls, then_and_co_await_run_on_threads_of_the_worker) {
  const auto here = std::this_thread::get_id();
  std::thread::id there;
  auto future = peer.async<squared>(3).then([&](int x) {
    there = std::this_thread::get_id();
    return x + 1;
  });
  EXPECT_EQ(future.get(), 10);
  EXPECT_NE(there, here);
  const auto chained = [](rpc::Peer to) -> Future<int> {
    const int nine = co_await to.async<squared>(3);
    co_return co_await to.async<squared>(nine);
  };
  EXPECT_EQ(chained(peer).get(), 81);
}

TEST_F(rpc_calls, a_handler_that_waits_in_then_may_call_again_and_wait) {
  auto future = peer.async<squared>(2).then([&](int four) { return peer.sync<squared>(four); });
  EXPECT_EQ(future.get(), 16);
}

TEST_F(rpc_calls, workers_are_listed_until_they_leave) {
  EXPECT_EQ(me.workers(), (std::vector<std::string>{"server0", "trainer0"}));
  auto third = job.start("third");
  EXPECT_EQ(me.workers().size(), 3u);
  third.shutdown({.graceful = false});
  EXPECT_EQ(me.workers(), (std::vector<std::string>{"server0", "trainer0"}));
}

TEST_F(rpc_calls, methods_that_are_not_offered_or_are_others_there_are_refused_by_name) {
  auto text = text_of<Mismatch>([&] { peer.sync<elsewhere::add_remote>("x"); });
  EXPECT_NE(text.find("f64(f64,f64) on worker 'server0' and str(str) here"), text.npos) << text;
  text = text_of<UsageError>([&] { peer.sync<elsewhere::unknown>(); });
  EXPECT_NE(text.find("worker 'server0' offers no method 'unknown'"), text.npos) << text;
  EXPECT_EQ(peer.sync<squared>(2), 4) << "nothing else is hurt";
}

TEST_F(rpc_calls, what_is_too_large_is_refused_with_what_to_do) {
  const auto text =
      text_of<UsageError>([&] { peer.sync<who_calls_remote>(std::string(17 << 20, 'x')); });
  EXPECT_NE(text.find("pass large data as tensors"), text.npos) << text;
  EXPECT_EQ(peer.sync<who_calls_remote>(std::string(8 << 20, 'x')).size(),
            (8u << 20) + std::string(" trainer0 of who_calls_remote").size());
}

TEST(rpc_init, refuses_names_that_are_taken_or_none) {
  Job job;
  auto first = job.start("twin");
  const auto text = text_of<UsageError>([&] { job.start("twin"); });
  EXPECT_NE(text.find("the name 'twin' is taken by process "), text.npos) << text;
  EXPECT_EQ(first.workers(), std::vector<std::string>{"twin"});
  first.shutdown({.graceful = false});
  EXPECT_NO_THROW(job.start("twin")) << "it is free again";
  for (const auto& name :
       {std::string(), std::string("a b"), std::string("\n"), std::string(257, 'x')})
    EXPECT_THROW(job.start(name), UsageError) << name;
  auto options = job.options("ranked");
  options.rank = 0;
  auto ranked = rpc::init(options);
  options.name = "other";
  options.store = std::shared_ptr<Store>(job.store->clone(Deadline::after(kPlenty)));
  EXPECT_NE(text_of<UsageError>([&] { rpc::init(options); }).find("rank 0 is taken"),
            std::string::npos);
  EXPECT_THROW(job.start("x", {rpc::offer<squared>(), rpc::offer<squared>()}), UsageError);
  options = job.options("few");
  options.most_threads = 1;
  EXPECT_THROW(rpc::init(options), UsageError);
}

TEST(rpc_init, workers_of_another_generation_are_not_seen) {
  Job job;
  auto old = job.start("server0", {rpc::offer<squared>()});
  auto options = job.options("trainer0");
  options.generation = 1;
  auto me = rpc::init(options);
  EXPECT_THROW(me.peer("server0", {.deadline = 20ms}), Timeout);
  EXPECT_EQ(me.workers(), std::vector<std::string>{"trainer0"});
}

}  // namespace trireme::rpc_calls_test
