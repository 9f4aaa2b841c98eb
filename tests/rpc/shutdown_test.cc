// SPDX-License-Identifier: Apache-2.0
// How workers leave: together, alone, too early, and out of their own callbacks.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/lost_calls.h"
#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"

namespace trireme::rpc_shutdown_test {
namespace {

using namespace rpc_test;
using rpc::CallLost;
using rpc::Future;

struct Service {
  Gate gate;
  std::atomic<int> runs{0};
  std::optional<rpc::Worker> worker;

  int echo(int x) {
    ++runs;
    return x;
  }
  int slow(int x) {
    ++runs;
    gate.wait();
    return x;
  }
  void never(rpc::Call& call) {
    ++runs;
    waits_for_stop(call);
  }
  void leave() { worker->shutdown({.graceful = false, .deadline = 10s}); }
};
TRIREME_REMOTE(echo, &Service::echo);
TRIREME_REMOTE(slow, &Service::slow);
TRIREME_REMOTE(never, &Service::never);
TRIREME_REMOTE(leave, &Service::leave);

std::vector<rpc::Offer> all(const std::shared_ptr<Service>& service) {
  return {rpc::offer<echo, slow, never, leave>(service)};
}

}  // namespace

TEST(rpc_shutdown, a_server_that_shuts_down_first_serves_until_all_have) {
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto one = job.start("trainer0"), two = job.start("trainer1");
  std::thread serving([&] { server.shutdown({.deadline = kPlenty}); });
  EXPECT_TRUE(comes_about([&] { return job.store->try_get("rpc/0/done/1").has_value(); }));
  const rpc::Peer peer = one.peer("server0");
  EXPECT_EQ(peer.sync<echo>(1), 1);
  std::thread leaving([&] { one.shutdown({.deadline = kPlenty}); });
  EXPECT_EQ(two.peer("server0").sync<echo>(2), 2);
  two.shutdown({.deadline = kPlenty});
  leaving.join();
  serving.join();
}

TEST(rpc_shutdown, waits_for_the_calls_that_are_under_way) {
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  auto future = me.peer("server0").async<slow>(3);
  ASSERT_TRUE(service->gate.has_waiting(1));
  std::thread leaving([&] { server.shutdown({.graceful = false, .deadline = kPlenty}); });
  // It takes no other call meanwhile, and says that it did not begin.
  EXPECT_TRUE(comes_about([&] {
    try {
      me.peer("server0").with(5s).sync<echo>(1);
      return false;
    } catch (const CallLost& error) {
      return error.began() == rpc::Began::no;
    }
  }));
  service->gate.open();
  EXPECT_EQ(future.get(), 3);
  leaving.join();
  me.shutdown({.deadline = kPlenty});
}

TEST(rpc_shutdown, ends_by_its_deadline_and_names_who_is_missing) {
  Job job;
  auto server = job.start("server0"), me = job.start("trainer0");
  const auto text = text_of<Timeout>([&] { server.shutdown({.deadline = 50ms}); });
  EXPECT_NE(text.find("have not called shutdown() by the deadline: 'trainer0'"), text.npos) << text;
  EXPECT_EQ(me.workers(), std::vector<std::string>{"trainer0"}) << "it has left all the same";
  EXPECT_NO_THROW(server.shutdown()) << "a second one does nothing";
}

TEST(rpc_shutdown, waits_for_ranks_of_the_job_that_have_not_joined_yet) {
  Job job;
  auto service = std::make_shared<Service>();
  auto options = job.options("server0", all(service));
  options.rank = 0;
  options.world = 2;
  auto server = rpc::init(options);
  std::thread serving([&] { server.shutdown({.deadline = kPlenty}); });
  EXPECT_TRUE(comes_about([&] { return job.store->try_get("rpc/0/done/1").has_value(); }));
  options = job.options("trainer0");
  options.rank = 1;
  options.world = 2;
  auto me = rpc::init(options);
  EXPECT_EQ(me.peer("server0").sync<echo>(1), 1);
  me.shutdown({.deadline = kPlenty});
  serving.join();
}

TEST(rpc_shutdown, names_ranks_that_never_join) {
  Job job;
  auto options = job.options("server0");
  options.rank = 0;
  options.world = 3;
  auto server = rpc::init(options);
  const auto text = text_of<Timeout>([&] { server.shutdown({.deadline = 50ms}); });
  EXPECT_NE(text.find("'rank 1', 'rank 2'"), text.npos) << text;
}

TEST(rpc_shutdown, does_not_wait_for_the_dead) {
  Job job;
  auto server = job.start("server0");
  auto dead = job.start("trainer0");
  job.store->set("rpc/0/done/2", "gone");  // what its will says where it is a process
  EXPECT_NO_THROW(server.shutdown({.deadline = kPlenty}));
}

TEST(rpc_shutdown, with_calls_outstanding_is_cut_off_at_the_deadline) {
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  auto future = me.peer("server0").async<never>();
  EXPECT_TRUE(comes_about([&] { return service->runs == 1; }));
  const auto text = text_of<Timeout>([&] { me.shutdown({.deadline = 50ms}); });
  EXPECT_NE(text.find("1 calls that it made were not answered"), text.npos) << text;
  EXPECT_THROW(future.get(), Aborted);
  // The handler has been told, so that its worker can leave.
  server.shutdown({.graceful = false, .deadline = kPlenty});
}

TEST(rpc_shutdown, a_handler_that_does_not_end_is_named) {
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = job.start("trainer0");
  auto future = me.peer("server0").async<slow>(1);
  ASSERT_TRUE(service->gate.has_waiting(1));
  std::thread opener;
  std::string text;
  std::thread leaving([&] {
    text = text_of<Timeout>([&] { server.shutdown({.graceful = false, .deadline = 50ms}); });
  });
  EXPECT_THROW(future.get(), CallLost);
  service->gate.open();  // it gets some seconds to come to its end
  leaving.join();
  EXPECT_NE(text.find("1 calls of others were not answered"), text.npos) << text;
}

TEST(rpc_shutdown, a_worker_that_is_destroyed_fails_its_calls_and_leaves) {
  testing::CapturedLog log;
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  std::optional<rpc::Worker> me = job.start("trainer0");
  std::optional<rpc::Peer> peer = me->peer("server0");
  auto future = peer->async<never>();
  EXPECT_TRUE(comes_about([&] { return service->runs == 1; }));
  me.reset();
  EXPECT_THROW(future.get(), Aborted);
  EXPECT_THROW(peer->sync<echo>(1), CallLost) << "a Peer outlives its worker, and is of no use";
  EXPECT_EQ(server.workers(), std::vector<std::string>{"server0"});
}

TEST(rpc_shutdown, a_callback_may_destroy_the_worker) {
  testing::CapturedLog log;
  Job job;
  auto service = std::make_shared<Service>();
  auto server = job.start("server0", all(service));
  auto me = std::make_shared<std::optional<rpc::Worker>>(job.start("trainer0"));
  std::atomic<bool> gone{false};
  auto future = (*me)->peer("server0").async<echo>(1).then([&, me](int) {
    me->reset();
    gone = true;
  });
  EXPECT_TRUE(comes_about([&] { return gone.load(); }));
  EXPECT_NO_THROW(future.get());
  EXPECT_TRUE(comes_about([&] { return server.workers().size() == 1; }));
}

TEST(rpc_shutdown, a_handler_may_shut_its_own_worker_down) {
  Job job;
  auto service = std::make_shared<Service>();
  service->worker = job.start("server0", all(service));
  auto me = job.start("trainer0");
  auto future = me.peer("server0").async<leave>();
  EXPECT_THROW(future.get(), CallLost);
  EXPECT_TRUE(comes_about([&] { return me.workers().size() == 1; }));
  service->worker.reset();
}

TEST(rpc_shutdown, threads_and_memory_return) {
  testing::CapturedLog log;
  Job job{100us, 5};
  std::weak_ptr<Service> kept;
  for (int round = 0; round < 20; ++round) {
    auto service = std::make_shared<Service>();
    kept = service;
    auto server = job.start("server0", all(service));
    auto me = job.start("trainer0");
    std::vector<Future<int>> futures;
    for (int i = 0; i < 20; ++i) futures.push_back(me.peer("server0").async<echo>(i));
    for (auto& future : futures) future.get();
    if (round % 2) me.shutdown({.graceful = false, .deadline = kPlenty});
  }
  EXPECT_TRUE(comes_about([&] { return kept.expired(); }));
}

}  // namespace trireme::rpc_shutdown_test
