// SPDX-License-Identifier: Apache-2.0
// What somebody would do who has not read the pages: each ends as it should, or with a sentence.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/roads.h"
#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"
#include "trireme/rpc/object/rref.h"

namespace trireme::rpc_outsiders_test {
namespace {

using namespace rpc_test;
using rpc::Future;
using rpc::RRef;

std::atomic<int> alive{0};

struct Box {
  explicit Box(int value) : value_(value) { ++alive; }
  ~Box() { --alive; }
  int get() const { return value_; }

 private:
  const int value_;
};
TRIREME_REMOTE_CLASS(Box, int);
TRIREME_REMOTE(get_box, &Box::get);

struct Service {
  Gate gate;
  int echo(int x) { return x; }
  int slow(int x) {
    gate.wait();
    return x;
  }
};
TRIREME_REMOTE(echo, &Service::echo);
TRIREME_REMOTE(slow, &Service::slow);

std::vector<rpc::Offer> all(const std::shared_ptr<Service>& service) {
  return {rpc::offer<echo, slow>(service), rpc::offer_objects<Box, get_box>()};
}

}  // namespace

TEST(rpc_outsiders, a_callback_that_shuts_down_ends_the_calls_that_are_under_way) {
  Job job;
  const auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  const rpc::Peer peer = me.peer("server0");
  auto under_way = peer.async<slow>(1);
  ASSERT_TRUE(service->gate.has_waiting(1));
  std::atomic<bool> over{false};
  auto first = peer.async<echo>(1).then([&](int) {
    const auto text =
        text_of<Timeout>([&] { me.shutdown({.graceful = false, .deadline = 100ms}); });
    EXPECT_NE(text.find("not answered"), text.npos) << text;
    over = true;
  });
  EXPECT_TRUE(comes_about([&] { return over.load(); }));
  EXPECT_THROW(under_way.get(), Aborted);
  service->gate.open();
  EXPECT_TRUE(comes_about([&] { return server.workers().size() == 1; }));
}

TEST(rpc_outsiders, two_inits_in_a_process_are_two_workers_and_need_two_names) {
  const Job job;
  const auto service = std::make_shared<Service>();
  const auto start = [&](const std::string& name) {
    return rpc::init(on_road(job, "local", name, all(service)));
  };
  auto first = start("worker");
  const auto text = text_of<UsageError>([&] { start("worker"); });
  EXPECT_NE(text.find("the name 'worker' is taken"), text.npos) << text;
  auto second = start("worker2");
  EXPECT_EQ(second.peer("worker").sync<echo>(1), 1) << "the first one is as it was";
  EXPECT_EQ(first.peer("worker2").sync<echo>(2), 2);
}

TEST(rpc_outsiders, two_jobs_with_one_secret_do_not_hear_each_other) {
  const testing::CapturedLog log;
  const auto road = [](const std::string& job_id) {
    return rpc::Road{"tcp", [job_id](const channel::Peer& self, channel::Accept accept) {
                       channel::TcpOptions options;
                       options.self = self;
                       options.credentials = {job_id, net::Secret(kJobSecret)};
                       options.accept = std::move(accept);
                       return std::shared_ptr<channel::Hub>(channel::tcp_hub(std::move(options)));
                     }};
  };
  const Job job;  // one store, as if the second job had been given the first one's
  auto options = job.options("server0", all(std::make_shared<Service>()));
  options.roads = {road("tonight")};
  auto server = rpc::init(options);
  auto friends = job.options("trainer0");
  friends.roads = {road("tonight")};
  auto me = rpc::init(friends);
  auto others = job.options("trainer1");
  others.roads = {road("last week")};
  auto stranger = rpc::init(others);
  EXPECT_THROW(stranger.peer("server0", {.deadline = 5s}), Error);
  EXPECT_EQ(me.peer("server0").sync<echo>(3), 3);
}

TEST(rpc_outsiders, a_method_that_is_offered_twice_is_refused_by_name) {
  const Job job;
  const auto service = std::make_shared<Service>();
  auto text = text_of<UsageError>([&] {
    job.start("server0", {rpc::offer<echo>(service), rpc::offer<echo>(service)});
  });
  EXPECT_NE(text.find("worker 'server0' offers 'echo' twice"), text.npos) << text;
  text = text_of<UsageError>([&] {
    job.start("server0", {rpc::offer_objects<Box, get_box>(), rpc::offer_objects<Box, get_box>()});
  });
  EXPECT_NE(text.find("twice"), text.npos) << text;
}

TEST(rpc_outsiders, a_name_may_have_slashes_and_is_no_other_workers) {
  const Job job;
  const auto service = std::make_shared<Service>();
  auto deep = job.start("rack1/../server/0", all(service));
  auto flat = job.start("server/0");
  EXPECT_EQ(flat.peer("rack1/../server/0").sync<echo>(4), 4);
  EXPECT_THROW(deep.peer("rack1/../server", {.deadline = 0s}), Timeout);
  for (const char* name : {"", "two words", "tab\t", "\x1b[31m", "grüße"})
    EXPECT_THROW(job.start(name), UsageError) << name;
}

TEST(rpc_outsiders, ten_thousand_references_dropped_at_once_are_all_freed_while_calls_go_on) {
  Job job;
  const auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  const rpc::Peer peer = me.peer("server0");
  {
    std::vector<RRef<Box>> boxes;
    for (int i = 0; i < 10'000; ++i) boxes.push_back(peer.remote<Box>(i));
    EXPECT_EQ(boxes.back().sync<get_box>(), 9'999);
    EXPECT_TRUE(comes_about([] { return alive == 10'000; })) << alive;
  }
  const auto begin = Clock::now();
  EXPECT_EQ(peer.sync<echo>(1), 1);
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_TRUE(comes_about([] { return alive == 0; })) << alive;
  EXPECT_TRUE(comes_about([&] {
    const auto there = rpc::detail::Access::objects(server)->counts();
    return there.owned + there.marks + rpc::detail::Access::objects(me)->counts().held == 0;
  }));
}

TEST(rpc_outsiders, a_future_that_nobody_looks_at_and_one_that_is_asked_twice_harm_nobody) {
  const Job job;
  const auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  const rpc::Peer peer = me.peer("server0");
  for (int i = 0; i < 100; ++i) (void)peer.async<echo>(i);
  auto future = peer.async<echo>(7);
  EXPECT_EQ(future.get(), 7);
  EXPECT_THROW(future.get(), Error);
  EXPECT_EQ(peer.sync<echo>(8), 8);
}

TEST(rpc_outsiders, what_is_called_after_shutdown_is_an_error_at_once) {
  const Job job;
  const auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  const rpc::Peer peer = me.peer("server0");
  RRef<Box> box = peer.remote<Box>(1);
  EXPECT_EQ(box.sync<get_box>(), 1);
  const testing::CapturedLog log;
  me.shutdown({.graceful = false, .deadline = kPlenty});
  EXPECT_THROW(peer.sync<echo>(1), Error);
  EXPECT_THROW(box.sync<get_box>(), Error);
  EXPECT_THROW(me.peer("server0", {.deadline = 5s}), Error);
  EXPECT_THROW(rpc::own(me, std::make_shared<Box>(1)), Aborted);
  EXPECT_NO_THROW(me.shutdown());
  EXPECT_EQ(log.with("shuts down with an RRef to a Box").size(), 1u);
}

}  // namespace trireme::rpc_outsiders_test
