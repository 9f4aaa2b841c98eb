// SPDX-License-Identifier: Apache-2.0
// References to parameters of other workers, and optimizers that are made for them.
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "tests/support/captured_log.h"
#include "trireme/rpc/training/distributed_optimizer.h"
#include "trireme/rpc/training/optimizer_host.h"
#include "trireme/rpc/training/remote_module.h"

namespace trireme::rpc_training_parameters_test {
namespace {

using namespace rpc_test;
using rpc::DistributedOptimizer;
using rpc::RemoteModule;
using rpc::RRef;

struct Scale : torch::nn::Module {
  explicit Scale(double first) {
    weight = register_parameter("weight", first * at::ones({3}, at::kDouble));
    bias = register_parameter("bias", at::zeros({3}, at::kDouble));
    frozen = register_parameter("frozen", at::ones({3}, at::kDouble), false);
  }
  Tensor forward(const Tensor& x) { return (x * weight + bias).tanh() * frozen; }
  Tensor weight, bias, frozen;
};
TRIREME_REMOTE_MODULE(scale, Scale, double);

std::atomic<int> optimizers{0};
std::unique_ptr<Optimizer> momentum(NamedTensors own) {
  ++optimizers;
  return make_sgd(std::move(own), {.momentum = 0.9});
}

class rpc_training_parameters : public ::testing::Test {
 protected:
  rpc::Worker start_server(const std::string& name) {
    return start_with_autograd(
        job, name, {rpc::offer_modules<scale>(), rpc::offer_optimizers({{"momentum", momentum}})});
  }
  static rpc::detail::Objects::Counts counts(const rpc::Worker& worker) {
    return rpc::detail::Access::objects(worker)->counts();
  }

  Job job{50us, 23};
  rpc::Worker one = start_server("server0"), two = start_server("server1");
  rpc::Worker me = start_with_autograd(job, "trainer0");
  const Tensor x = leaf({0.5, -1, 2}).detach();
};

}  // namespace

TEST_F(rpc_training_parameters, an_optimizer_over_references_is_one_optimizer_over_all) {
  const RemoteModule<scale> first(me.peer("server0"), 0.5), second(me.peer("server1"), 2.0);
  auto parameters = first.parameters();
  ASSERT_EQ(parameters.size(), 3u) << "frozen ones, too";
  EXPECT_EQ(parameters[0].owner(), "server0");
  for (auto& more : second.parameters()) parameters.push_back(std::move(more));
  const DistributedOptimizer optimizer(me, "momentum", parameters, 0.1);
  Scale a(0.5), b(2.0);
  const auto alone =
      make_sgd({{"a", a.weight}, {"c", a.bias}, {"b", b.weight}, {"d", b.bias}}, {.momentum = 0.9});
  for (int step = 0; step < 10; ++step) {
    Context context(me);
    context.backward({second.forward(first.forward(x)).sum()});
    optimizer.step(context);
    alone->zero_grad(true);
    b.forward(a.forward(x)).sum().backward();
    alone->step(0.1);
  }
  EXPECT_TRUE(near(parameters[0].to_here(), a.weight.detach()));
  EXPECT_TRUE(near(parameters[4].to_here(), b.bias.detach()));
  EXPECT_TRUE(near(second.state_dict().at("weight"), b.weight.detach()));
  EXPECT_TRUE(near(parameters[2].to_here(), at::ones({3}, at::kDouble)));
}

TEST_F(rpc_training_parameters, a_copy_that_is_fetched_within_a_context_has_the_graph) {
  const RemoteModule<scale> part(me.peer("server0"), 0.5);
  const auto parameters = part.parameters();
  EXPECT_FALSE(parameters[0].to_here().requires_grad());
  Context context(me);
  const Tensor weight = parameters[0].to_here();
  ASSERT_TRUE(weight.requires_grad());
  context.backward({(weight * weight * x).sum()});
  const auto there = rpc::autograd::gradients(one, context.id());
  ASSERT_EQ(there.size(), 1u);
  EXPECT_TRUE(near(there[0].second, x));  // 2 · 0.5 · x
}

TEST_F(rpc_training_parameters, references_outlive_their_module_and_leave_nothing_behind) {
  {
    std::optional<RemoteModule<scale>> part(std::in_place, me.peer("server0"), 0.5);
    const auto parameters = part->parameters();
    part.reset();
    EXPECT_TRUE(near(parameters[0].to_here(), at::full({3}, 0.5, at::kDouble)));
    const int before = optimizers;
    const DistributedOptimizer optimizer(me, "momentum", parameters, 0.1);
    EXPECT_EQ(optimizers, before + 1);
  }
  EXPECT_TRUE(comes_about([&] {
    const auto now = counts(one), mine = counts(me);
    return now.owned + now.passed + mine.held == 0;
  }));
}

TEST_F(rpc_training_parameters, what_cannot_be_optimized_is_refused_with_what_to_do) {
  const RemoteModule<scale> part(me.peer("server0"), 0.5);
  const auto parameters = part.parameters();
  auto text = text_of<UsageError>([&] { DistributedOptimizer(me, "lion", parameters, 0.1); });
  EXPECT_NE(text.find("no optimizer 'lion' is offered here, but 'momentum'"), text.npos) << text;
  text = text_of<UsageError>([&] {
    DistributedOptimizer(me, "momentum", {parameters[0], parameters[0]}, 0.1);
  });
  EXPECT_NE(text.find("given twice"), text.npos) << text;
  text =
      text_of<UsageError>([&] { DistributedOptimizer(me, "momentum", {RRef<at::Tensor>()}, 0.1); });
  EXPECT_NE(text.find("refers to nothing"), text.npos) << text;
  EXPECT_THROW(DistributedOptimizer(me, "momentum", std::vector<RRef<at::Tensor>>{}, 0.1),
               UsageError);
  const auto mine = rpc::own(me, std::make_shared<at::Tensor>(leaf({1, 2})));
  text = text_of<UsageError>([&] { DistributedOptimizer(me, "momentum", {mine}, 0.1); });
  EXPECT_NE(text.find("worker 'trainer0' makes no optimizers"), text.npos) << text;
  // Of a tensor that is no leaf nobody makes one.
  const auto made = rpc::own(one, std::make_shared<at::Tensor>(leaf({1, 2}) * 2));
  text = text_of<UsageError>([&] { DistributedOptimizer(one, "momentum", {made}, 0.1); });
  EXPECT_NE(text.find("no leaf"), text.npos) << text;
  Context context(me);
  const DistributedOptimizer without(std::vector<rpc::OptimizedPart>{});
  EXPECT_THROW(without.step(context), UsageError);
}

TEST_F(rpc_training_parameters, an_owner_that_dies_fails_the_step_by_its_name) {
  testing::CapturedLog log;
  const RemoteModule<scale> part(me.peer("server1"), 0.5);
  const auto parameters = part.parameters();
  const DistributedOptimizer optimizer(me, "momentum", parameters, 0.1);
  Context context(me);
  job.net->kill("server1");
  const auto text = text_of<PeerLost>([&] { optimizer.step(context); });
  EXPECT_NE(text.find("server1"), text.npos) << text;
  two.shutdown({.graceful = false, .deadline = 0s});
}

}  // namespace trireme::rpc_training_parameters_test
