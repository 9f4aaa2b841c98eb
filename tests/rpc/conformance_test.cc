// SPDX-License-Identifier: Apache-2.0
// What calls do on every road: in this process's memory, through shared memory and over TCP.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/lost_calls.h"
#include "tests/rpc/roads.h"
#include "tests/support/captured_log.h"

namespace trireme::rpc_conformance_test {
namespace {

using namespace rpc_test;
using rpc::CallLost;
using rpc::Future;

struct Sample {
  int64_t id = 0;
  std::vector<float> values;
  std::map<std::string, std::optional<double>> notes;
  bool operator==(const Sample&) const = default;
  TRIREME_FIELDS(id, values, notes)
};

struct Service {
  Gate gate;
  std::optional<rpc::Worker> me;
  std::atomic<int> stopped{0}, runs{0};

  int echo(int x) {
    ++runs;
    return x;
  }
  Sample sample(const Sample& sample) { return sample; }
  std::string text(const std::string& text) { return text; }
  void fails(const std::string& how) {
    if (how == "usage") throw UsageError("wrong use", {2, 3, "op", 4});
    throw std::out_of_range("3 is too far");
  }
  int hold(int x) {
    gate.wait();
    return x;
  }
  int until_stopped(rpc::Call& call) {
    ++runs;
    stopped += waits_for_stop(call);
    return 0;
  }
  int bounce(rpc::Call& call, int left);
};
TRIREME_REMOTE(echo, &Service::echo);
TRIREME_REMOTE(sample, &Service::sample);
TRIREME_REMOTE(text, &Service::text);
TRIREME_REMOTE(fails, &Service::fails);
TRIREME_REMOTE(hold, &Service::hold);
TRIREME_REMOTE(until_stopped, &Service::until_stopped);
TRIREME_REMOTE(bounce, &Service::bounce);

int Service::bounce(rpc::Call& call, int left) {
  return left == 0 ? 0 : 1 + me->peer(call.caller()).sync<struct bounce>(left - 1);
}

std::vector<rpc::Offer> all(const std::shared_ptr<Service>& service) {
  return {rpc::offer<echo, sample, text, fails, hold, until_stopped, bounce>(service)};
}

/// A server and a trainer that have met.
struct Two {
  explicit Two(const std::string& road) : road(road) {
    service->me = server;
    mine->me = me;
  }
  ~Two() {
    service->gate.open();
    service->me.reset();
    mine->me.reset();
    for (const auto& worker : {me, server})
      worker.shutdown({.graceful = false, .deadline = kPlenty});
  }
  const std::string road;
  testing::CapturedLog log;
  Job job;
  std::shared_ptr<Service> service = std::make_shared<Service>(),
                           mine = std::make_shared<Service>();
  rpc::Worker server = rpc::init(on_road(job, road, "server0", all(service)));
  rpc::Worker me = rpc::init(on_road(job, road, "trainer0", all(mine)));
  rpc::Peer peer = me.peer("server0");
};

void values_of_all_kinds_come_back_as_they_went(const std::string& road) {
  Two two(road);
  EXPECT_EQ(two.peer.sync<echo>(-3), -3);
  const Sample what{21, {0.5f, -2}, {{"a", 1.0}, {"b", std::nullopt}}};
  EXPECT_EQ(two.peer.sync<sample>(what), what);
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{70'000}, size_t{300'000}, size_t{8} << 20}) {
    const std::string large(bytes, 'x');
    EXPECT_EQ(two.peer.sync<text>(large), large) << bytes;
  }
}

void either_end_calls_and_handlers_call_back(const std::string& road) {
  Two two(road);
  EXPECT_EQ(two.server.peer("trainer0").sync<echo>(4), 4);
  EXPECT_EQ(two.peer.sync<bounce>(6), 6);
}

void a_thousand_that_are_outstanding_are_all_answered(const std::string& road) {
  Two two(road);
  std::vector<Future<int>> futures;
  for (int i = 0; i < 1000; ++i) futures.push_back(two.peer.async<echo>(i));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(futures[static_cast<size_t>(i)].get(), i);
  EXPECT_EQ(two.service->runs, 1000) << "each ran once";
  EXPECT_LE(two.server.threads(), 6);
}

void many_threads_get_their_own_answers(const std::string& road) {
  Two two(road);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(two.peer.sync<echo>(1000 * t + i), 1000 * t + i);
    });
  for (auto& thread : threads) thread.join();
}

void errors_keep_their_class_and_text(const std::string& road) {
  Two two(road);
  EXPECT_NE(text_of<UsageError>([&] { two.peer.sync<fails>("usage"); }).find("wrong use"),
            std::string::npos);
  EXPECT_NE(text_of<rpc::RemoteError>([&] { two.peer.sync<fails>("range"); }).find("3 is too far"),
            std::string::npos);
  EXPECT_EQ(two.peer.sync<echo>(1), 1);
}

void a_deadline_ends_a_call_and_tells_its_handler(const std::string& road) {
  Two two(road);
  EXPECT_THROW(two.peer.with(50ms).sync<until_stopped>(), Timeout);
  EXPECT_TRUE(comes_about([&] { return two.service->stopped == 1; }));
  auto future = two.peer.async<until_stopped>();
  EXPECT_TRUE(comes_about([&] { return two.service->runs == 2; }));
  future.cancel();
  EXPECT_THROW(future.get(), Aborted);
  EXPECT_TRUE(comes_about([&] { return two.service->stopped == 2; }));
}

void a_large_answer_holds_no_small_one_up(const std::string& road) {
  Two two(road);
  const std::string large(4 << 20, 'x');
  std::vector<Future<std::string>> slow;
  for (int i = 0; i < 3; ++i) slow.push_back(two.peer.async<text>(large));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(two.peer.sync<echo>(i), i);
  for (auto& future : slow) EXPECT_EQ(future.get().size(), large.size());
}

void a_worker_that_leaves_is_lost_to_the_others(const std::string& road) {
  Two two(road);
  auto gone = rpc::init(on_road(two.job, road, "gone", all(std::make_shared<Service>())));
  const rpc::Peer peer = two.me.peer("gone");
  EXPECT_EQ(peer.sync<echo>(1), 1);
  gone.shutdown({.graceful = false, .deadline = kPlenty});
  EXPECT_TRUE(comes_about([&] {
    try {
      peer.with(1s).sync<echo>(2);
    } catch (const CallLost& error) {
      return error.began() == rpc::Began::no;
    } catch (const Error&) {
    }
    return false;
  }));
  EXPECT_EQ(two.peer.sync<echo>(3), 3);
}

void shutdown_waits_until_all_have_come_to_it(const std::string& road) {
  Two two(road);
  std::thread serving([&] { two.server.shutdown({.deadline = kPlenty}); });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(two.peer.sync<echo>(i), i) << "it answers meanwhile";
  EXPECT_NO_THROW(two.me.shutdown({.deadline = kPlenty}));
  serving.join();
}

}  // namespace

#define RPC_FACT(fact)                                   \
  TEST(rpc_conformance_memory, fact) { fact("memory"); } \
  TEST(rpc_conformance_local, fact) { fact("local"); }   \
  TEST(rpc_conformance_tcp, fact) { fact("tcp"); }

RPC_FACT(values_of_all_kinds_come_back_as_they_went)
RPC_FACT(either_end_calls_and_handlers_call_back)
RPC_FACT(a_thousand_that_are_outstanding_are_all_answered)
RPC_FACT(many_threads_get_their_own_answers)
RPC_FACT(errors_keep_their_class_and_text)
RPC_FACT(a_deadline_ends_a_call_and_tells_its_handler)
RPC_FACT(a_large_answer_holds_no_small_one_up)
RPC_FACT(a_worker_that_leaves_is_lost_to_the_others)
RPC_FACT(shutdown_waits_until_all_have_come_to_it)

TEST(rpc_conformance, a_worker_of_several_roads_is_reached_by_each_of_them) {
  Job job;
  auto options = on_road(job, "memory", "server0", all(std::make_shared<Service>()));
  options.roads.push_back(local_road());
  options.roads.push_back(tcp_road());
  auto server = rpc::init(std::move(options));
  std::vector<rpc::Worker> trainers;
  for (const std::string road : {"tcp", "local", "memory"}) {
    trainers.push_back(rpc::init(on_road(job, road, "trainer_" + road)));
    EXPECT_EQ(trainers.back().peer("server0").sync<echo>(5), 5) << road;
  }
  for (int i = 0; i < 100; ++i)
    for (const auto& trainer : trainers) EXPECT_EQ(trainer.peer("server0").sync<echo>(i), i);
}

TEST(rpc_conformance, workers_without_a_common_road_say_so) {
  Job job;
  auto server = rpc::init(on_road(job, "tcp", "server0"));
  auto me = rpc::init(on_road(job, "local", "trainer0"));
  const auto text = text_of<CallLost>([&] { me.peer("server0"); });
  EXPECT_NE(text.find("no road that worker 'trainer0' has"), text.npos) << text;
}

}  // namespace trireme::rpc_conformance_test
