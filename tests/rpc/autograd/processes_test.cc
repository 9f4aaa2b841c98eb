// SPDX-License-Identifier: Apache-2.0
// Backward over processes, through the shared memory of a host; one is killed in the middle.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "tests/support/forked.h"
#include "trireme/base/file.h"
#include "trireme/channel/local/hub.h"
#include "trireme/store/file/file_store.h"

namespace trireme::rpc_autograd_processes_test {
namespace {

using namespace rpc_test;

struct Model {
  Tensor weight = leaf({1, 2, 3});
  const rpc::Worker* me = nullptr;
  bool dies = false;
  Tensor times(const Tensor& x) {
    Tensor y = x * weight;
    if (dies && y.requires_grad()) y.register_hook([](const Tensor&) { std::raise(SIGKILL); });
    return y;
  }
  void will_die() { dies = true; }
  int64_t contexts() { return rpc::autograd::contexts(*me); }
  Tensor weight_gradient(int64_t member, uint64_t number) {
    return gradient_at(*me, {member, number}, weight);
  }
};
TRIREME_REMOTE(times, &Model::times);
TRIREME_REMOTE(will_die, &Model::will_die);
TRIREME_REMOTE(contexts_there, &Model::contexts);
TRIREME_REMOTE(weight_gradient, &Model::weight_gradient);

rpc::Worker start(const std::string& folder, const std::string& name, uint32_t rank,
                  const std::shared_ptr<Model>& model) {
  rpc::Options options;
  options.name = name;
  options.deadline = 20s;
  options.store = FileStore::join(
      folder + "/store", {.job_id = "autograd", .attempt = 0, .world_size = 3, .rank = rank},
      Deadline::after(kPlenty));
  options.roads = {{"local", [](const channel::Peer& self, channel::Accept accept) {
                      return std::shared_ptr<channel::Hub>(
                          channel::local_hub({.self = self, .accept = std::move(accept)}));
                    }}};
  options.threads = 2;
  options.offers = {rpc::autograd::offer(),
                    rpc::offer<times, will_die, contexts_there, weight_gradient>(model)};
  return rpc::init(options);
}

/// A server in a process of its own, until the others leave.
std::unique_ptr<testing::ForkedChild> server(const std::string& folder, uint32_t rank) {
  return std::make_unique<testing::ForkedChild>(testing::ChildEnd::exit_at_once, [folder, rank] {
    const auto model = std::make_shared<Model>();
    auto me = start(folder, "server" + std::to_string(rank), rank, model);
    model->me = &me;
    me.peer("trainer0");  // who comes first would not wait for those that come later
    me.shutdown({.deadline = 30s});
    return std::string();
  });
}

}  // namespace

TEST(rpc_autograd_processes, gradients_cross_processes_and_a_kill_in_backward_is_a_lost_peer) {
  const PrivateFolder folder("trireme-test");
  const auto killed = server(folder.path(), 0), lives = server(folder.path(), 1);
  auto me = start(folder.path(), "trainer0", 2, std::make_shared<Model>());
  const rpc::Peer first = me.peer("server0"), second = me.peer("server1");
  const Tensor x = leaf({0.5, -1, 2});
  {
    Context context(me);
    context.backward({first.sync<times>(second.sync<times>(x) * 2).sum()});
    EXPECT_TRUE(near(context.gradient(x), leaf({2, 8, 18})));
    EXPECT_TRUE(near(second.sync<weight_gradient>(context.id().member, context.id().number),
                     leaf({1, -4, 12})));
  }
  EXPECT_TRUE(comes_about([&] { return second.sync<contexts_there>() == 0; }));
  first.sync<will_die>();
  const auto before = Clock::now();
  {
    Context context(me);
    const Tensor y = second.sync<times>(first.sync<times>(second.sync<times>(x)));
    EXPECT_THROW(context.backward({y.sum()}), PeerLost);
  }
  EXPECT_LT(seconds_since(before), 10) << "and not at the deadline of 20 s";
  EXPECT_TRUE(comes_about([&] { return second.sync<contexts_there>() == 0; }));
  {
    Context context(me);
    context.backward({second.sync<times>(x).sum()});
    EXPECT_TRUE(near(context.gradient(x), leaf({1, 2, 3})));
  }
  me.shutdown({.deadline = kPlenty});
  EXPECT_EQ(lives->ended(), "");
}

}  // namespace trireme::rpc_autograd_processes_test
