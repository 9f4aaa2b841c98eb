// SPDX-License-Identifier: Apache-2.0
// Remote calls through the shared memory of a host.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"
#include "trireme/channel/local/hub.h"

namespace trireme::rpc_local_test {
namespace {

using namespace rpc_test;
using rpc::Future;

struct Service {
  int echo(int x) { return x; }
  std::string text(const std::string& text) { return text; }
};
TRIREME_REMOTE(echo, &Service::echo);
TRIREME_REMOTE(text, &Service::text);

rpc::Worker start(const Job& job, const std::string& name, std::vector<rpc::Offer> offers = {}) {
  auto options = job.options(name, std::move(offers));
  options.roads = {{"local", [](const channel::Peer& self, channel::Accept accept) {
                      return std::shared_ptr<channel::Hub>(
                          channel::local_hub({.self = self, .accept = std::move(accept)}));
                    }}};
  return rpc::init(options);
}

}  // namespace

TEST(rpc_local, calls_go_through_shared_memory) {
  Job job;
  auto server = start(job, "server0", {rpc::offer<echo, text>(std::make_shared<Service>())});
  auto me = start(job, "trainer0", {rpc::offer<echo>(std::make_shared<Service>())});
  const rpc::Peer peer = me.peer("server0");
  EXPECT_EQ(peer.sync<echo>(3), 3);
  const std::string large(5 << 20, 'x');
  EXPECT_EQ(peer.sync<text>(large), large);
  std::vector<Future<int>> futures;
  for (int i = 0; i < 1000; ++i) futures.push_back(peer.async<echo>(i));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(futures[static_cast<size_t>(i)].get(), i);
  EXPECT_EQ(server.peer("trainer0").sync<echo>(4), 4);
  EXPECT_LE(server.threads(), 6);
  me.shutdown({.graceful = false, .deadline = kPlenty});
  EXPECT_EQ(server.workers(), std::vector<std::string>{"server0"});
}

TEST(rpc_local, many_threads_call_at_once_and_get_their_own_answers) {
  Job job;
  auto server = start(job, "server0", {rpc::offer<echo, text>(std::make_shared<Service>())});
  auto me = start(job, "trainer0");
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      const rpc::Peer peer = me.peer("server0");
      for (int i = 0; i < 200; ++i) EXPECT_EQ(peer.sync<echo>(1000 * t + i), 1000 * t + i);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace trireme::rpc_local_test
