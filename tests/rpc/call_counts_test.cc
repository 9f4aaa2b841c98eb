// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/call_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/roads.h"
#include "tests/support/captured_log.h"

namespace trireme::rpc_call_counts_test {
namespace {

using namespace rpc_test;
using namespace rpc::detail;

struct Service {
  Gate gate;
  std::string text(const std::string& text) { return text; }
  int fails() { throw std::out_of_range("3"); }
  void hold() { gate.wait(); }
};
TRIREME_REMOTE(text, &Service::text);
TRIREME_REMOTE(fails, &Service::fails);
TRIREME_REMOTE(hold, &Service::hold);

rpc::MethodMetrics of(const rpc::Worker& worker, const std::string& method) {
  for (const auto& metrics : worker.metrics())
    if (metrics.method == method) return metrics;
  return {};
}

}  // namespace

TEST(rpc_call_counts, a_time_is_in_the_class_whose_longest_is_at_most_an_eighth_more) {
  std::mt19937_64 random(3);
  size_t last = 0;
  for (int bits = 0; bits < 64; ++bits)
    for (int i = 0; i < 200; ++i) {
      const uint64_t ns = (uint64_t{1} << bits) | (random() & ((uint64_t{1} << bits) - 1));
      const size_t index = class_of_time(ns);
      ASSERT_LT(index, kTimeClasses);
      ASSERT_GE(longest_of_class(index), ns);
      ASSERT_LE(longest_of_class(index) - ns, ns / 8) << ns;
      ASSERT_TRUE(index == 0 || longest_of_class(index - 1) < ns) << ns;
      last = std::max(last, index);
    }
  EXPECT_EQ(class_of_time(0), 0u);
  EXPECT_EQ(last, class_of_time(UINT64_MAX));
}

TEST(rpc_call_counts, parts_of_many_times_are_those_of_the_sorted_list) {
  std::mt19937_64 random(5);
  for (const int n : {1, 2, 3, 10, 99, 100, 101, 5000}) {
    std::vector<uint64_t> times, of_class(kTimeClasses);
    for (int i = 0; i < n; ++i) {
      times.push_back(uint64_t{1} << random() % 30 | random() % 1000);
      ++of_class[class_of_time(times.back())];
    }
    std::sort(times.begin(), times.end());
    for (const double part : {0.5, 0.99}) {
      const auto at = static_cast<size_t>(std::ceil(part * n)) - 1;
      const double exact = static_cast<double>(times[at]) * 1e-9;
      EXPECT_GE(time_of_part(of_class, part), exact) << n;
      EXPECT_LE(time_of_part(of_class, part), exact * 1.126) << n;
    }
  }
  EXPECT_EQ(time_of_part(std::vector<uint64_t>(kTimeClasses), 0.5), 0);
}

TEST(rpc_call_counts, a_worker_knows_what_it_made_and_what_it_answered) {
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", {rpc::offer<text, fails, hold>(service)});
  auto me = job.start("trainer0");
  EXPECT_TRUE(server.metrics().empty() && me.metrics().empty());
  const rpc::Peer peer = me.peer("server0");
  for (int i = 0; i < 10; ++i) peer.sync<text>(std::string(1000, 'x'));
  for (int i = 0; i < 3; ++i) EXPECT_THROW(peer.sync<fails>(), rpc::RemoteError);
  auto held = peer.async<hold>();
  ASSERT_TRUE(service->gate.has_waiting(1));
  EXPECT_THROW(peer.with(20ms).sync<hold>(), Timeout);

  const auto made = of(me, "text").made;
  EXPECT_EQ(made.calls, 10u);
  EXPECT_EQ(made.errors, 0u);
  EXPECT_EQ(made.argument_bytes, 10u * 1008) << "a string is its length and its characters";
  EXPECT_EQ(made.result_bytes, 10u * 1008);
  EXPECT_GT(made.p50_s, 0);
  EXPECT_GE(made.p99_s, made.p50_s);
  EXPECT_EQ(of(me, "fails").made.errors, 3u);
  EXPECT_EQ(of(me, "fails").made.calls, 3u);
  EXPECT_EQ(of(me, "hold").made.under_way, 1u);
  EXPECT_EQ(of(me, "hold").made.errors, 1u) << "the one that came too late";
  EXPECT_GE(of(me, "hold").made.p99_s, 0.02);
  EXPECT_EQ(of(me, "text").answered.calls, 0u);

  const auto answered = of(server, "text").answered;
  EXPECT_EQ(answered.calls, 10u);
  EXPECT_EQ(answered.argument_bytes, made.argument_bytes);
  EXPECT_EQ(answered.result_bytes, made.result_bytes);
  EXPECT_LE(answered.p50_s, made.p99_s * 1.2);
  EXPECT_EQ(of(server, "fails").answered.errors, 3u);
  EXPECT_GE(of(server, "hold").answered.under_way, 1u);
  service->gate.open();
  held.get();
  EXPECT_EQ(of(me, "hold").made.under_way, 0u);
}

TEST(rpc_call_counts, calls_that_are_lost_with_their_peer_are_errors) {
  testing::CapturedLog log;
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", {rpc::offer<hold>(service)});
  auto me = job.start("trainer0");
  auto future = me.peer("server0").async<hold>();
  ASSERT_TRUE(service->gate.has_waiting(1));
  job.net->kill("server0");
  EXPECT_THROW(future.get(), rpc::CallLost);
  EXPECT_EQ(of(me, "hold").made.errors, 1u);
  EXPECT_EQ(of(me, "hold").made.under_way, 0u);
  service->gate.open();
}

TEST(rpc_call_counts, what_a_peer_merely_offers_costs_nothing) {
  Job job;
  auto server = job.start("server0", {rpc::offer<text, fails, hold>(std::make_shared<Service>())});
  auto me = job.start("trainer0");
  me.peer("server0").sync<text>("x");
  ASSERT_EQ(me.metrics().size(), 1u);
  EXPECT_EQ(me.metrics()[0].method, "text");
}

TEST(rpc_call_counts, threads_that_count_at_once_lose_nothing) {
  CallCounts counts;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 10'000; ++i) {
        counts.began();
        counts.ended(i, t != 0, 3, 5);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counts.now().calls, 40'000u);
  EXPECT_EQ(counts.now().errors, 10'000u);
  EXPECT_EQ(counts.now().argument_bytes, 120'000u);
  EXPECT_EQ(counts.now().result_bytes, 200'000u);
}

}  // namespace trireme::rpc_call_counts_test
