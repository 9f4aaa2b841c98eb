// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/training/distributed_optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/schedule/lr_schedule.h"
#include "trireme/rpc/training/owned_optimizer.h"

namespace trireme::rpc_training_optimizer_test {
namespace {

using namespace rpc_test;
using rpc::DistributedOptimizer;
using rpc::OwnedOptimizer;

struct Layer {
  Tensor weight = leaf({0.5, -0.25, 1});
  Tensor bias = leaf({0.1, 0.2, 0.3});
  Tensor unused = leaf({7, 7, 7});
  Tensor through(const Tensor& x) { return (x * weight + bias).tanh(); }
  NamedTensors parameters() const {
    return {{"weight", weight}, {"bias", bias}, {"unused", unused}};
  }
};
TRIREME_REMOTE(through, &Layer::through);

std::unique_ptr<Optimizer> sgd(NamedTensors own) {
  return make_sgd(std::move(own), {.momentum = 0.9, .weight_decay = 0.01});
}
std::unique_ptr<Optimizer> adamw(NamedTensors own) { return make_adamw(std::move(own)); }
std::unique_ptr<torch::optim::Optimizer> torch_adam(std::vector<at::Tensor> own) {
  return std::make_unique<torch::optim::Adam>(std::move(own), torch::optim::AdamOptions(1e-3));
}

/// Two servers and a trainer, each with a layer of its own.
class rpc_training_optimizer : public ::testing::Test {
 protected:
  static constexpr const char* kNames[] = {"server0", "server1", "trainer0"};

  template <class Make>
  void start(const Make& make) {
    for (const char* name : kNames) {
      layers.push_back(std::make_shared<Layer>());
      optimizers.push_back(std::make_shared<OwnedOptimizer>(layers.back()->parameters(), make));
      workers.push_back(start_with_autograd(
          job, name, {rpc::offer<through>(layers.back()), rpc::offer(optimizers.back())}));
    }
  }
  const rpc::Worker& me() { return workers[2]; }
  DistributedOptimizer optimizer() { return {me(), {"server0", "server1", "trainer0"}}; }
  Tensor loss(const Tensor& x) {
    const Tensor y = me().peer("server1").sync<through>(me().peer("server0").sync<through>(x));
    return (layers[2]->through(y) - 0.3).pow(2).sum();
  }

  /// The same in one thread.
  struct Local {
    Layer layers[3];
    NamedTensors all;
    Local() {
      for (int i = 0; i < 3; ++i)
        for (const auto& [name, parameter] : layers[i].parameters())
          all.emplace_back(std::to_string(i) + "." + name, parameter);
    }
    Tensor loss(const Tensor& x) {
      Tensor y = x;
      for (Layer& layer : layers) y = layer.through(y);
      return (y - 0.3).pow(2).sum();
    }
  };
  void expect_equal(const Local& local) {
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(near(layers[i]->weight, local.layers[i].weight)) << i;
      EXPECT_TRUE(near(layers[i]->bias, local.layers[i].bias)) << i;
      EXPECT_TRUE(near(layers[i]->unused, local.layers[i].unused)) << i;
    }
  }

  Job job{50us, 17};
  std::vector<std::shared_ptr<Layer>> layers;
  std::vector<std::shared_ptr<OwnedOptimizer>> optimizers;
  std::vector<rpc::Worker> workers;
  const Tensor x = at::tensor({0.4, -0.8, 1.2}, at::kDouble);
};

/// Saves all that is visited, or loads it.
class Kept final : public StateVisitor {
 public:
  explicit Kept(bool loads = false) : loads_(loads) {}
  void turn() { loads_ = true; }
  void tensor(const Slice& slice, at::Tensor local) override {
    if (loads_)
      local.copy_(tensors_.at(slice.name).reshape(local.sizes()));
    else
      tensors_[slice.name] = local.clone();
  }
  void value(const std::string& name, int64_t& v) override { keep(integers_, name, v); }
  void value(const std::string& name, double& v) override { keep(numbers_, name, v); }
  void value(const std::string& name, std::string& v) override { keep(texts_, name, v); }
  Purpose purpose() const override { return loads_ ? Purpose::load : Purpose::save; }

 private:
  template <class V>
  void keep(std::map<std::string, V>& kept, const std::string& name, V& v) {
    if (loads_)
      v = kept.at(name);
    else
      kept[name] = v;
  }
  bool loads_;
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, int64_t> integers_;
  std::map<std::string, double> numbers_;
  std::map<std::string, std::string> texts_;
};

}  // namespace

TEST_F(rpc_training_optimizer, steps_of_several_owners_are_those_of_one_optimizer) {
  start(sgd);
  const auto distributed = optimizer();
  Local local;
  const auto alone = sgd(local.all);
  const LRScheduler schedule({.type = "cosine", .lr = 0.1, .total_num_steps = 10});
  for (int step = 1; step <= 10; ++step) {
    Context context(me());
    context.backward({loss(x)});
    distributed.step(context, {.lr = schedule.lr_at(step)});
    alone->zero_grad(true);
    local.loss(x).backward();
    alone->step(schedule.lr_at(step));
  }
  expect_equal(local);
  for (const auto& owned : optimizers) EXPECT_EQ(owned->steps(), 10);
  EXPECT_FALSE(layers[2]->weight.grad().defined());
}

TEST_F(rpc_training_optimizer, clipping_is_by_the_norm_over_all_owners) {
  start(adamw);
  const auto distributed = optimizer();
  Local local;
  const auto alone = adamw(local.all);
  for (int step = 1; step <= 5; ++step) {
    Context context(me());
    context.backward({100 * loss(x)});
    const auto done = distributed.step(context, {.lr = 0.01, .max_norm = 0.5, .grad_scale = 0.1});
    alone->zero_grad(true);
    (100 * local.loss(x)).backward();
    const GradNorm norm = grad_norm(local.all, 0.5, 0.1);
    EXPECT_NEAR(done.norm, norm.norm, 1e-12 * norm.norm);
    EXPECT_NEAR(done.coefficient, norm.coefficient, 1e-12);
    EXPECT_LT(done.coefficient, 1) << "it is clipped";
    alone->step(0.01, 0.1 * norm.coefficient);
  }
  expect_equal(local);
}

TEST_F(rpc_training_optimizer, may_be_one_of_torch_optim) {
  start(torch_adam);
  const auto distributed = optimizer();
  Local local;
  std::vector<at::Tensor> all;
  for (const auto& [name, parameter] : local.all) all.push_back(parameter);
  torch::optim::Adam alone(all, torch::optim::AdamOptions(0.05));
  for (int step = 1; step <= 5; ++step) {
    Context context(me());
    context.backward({loss(x)});
    distributed.step(context, {.lr = 0.05});
    alone.zero_grad();
    local.loss(x).backward();
    // LibTorch 1.13 leaves zeros where there was a gradient, and nothing where there was none.
    alone.step();
  }
  expect_equal(local);
}

TEST_F(rpc_training_optimizer, contexts_at_once_step_with_their_own_gradients) {
  start([](NamedTensors own) { return make_sgd(std::move(own)); });
  const DistributedOptimizer distributed(me(), {"server0"});
  const Tensor before = layers[0]->weight.detach().clone();
  std::vector<std::thread> trainers;
  for (int t = 1; t <= 4; ++t)
    trainers.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        Context context(me());
        // A gradient that does not depend on the weights: the order of steps does not matter.
        const Tensor y = me().peer("server0").sync<through>(at::full({3}, 1.0 * t, at::kDouble));
        const Tensor linear = y / (1 - y * y).detach();
        context.backward({linear.sum()});
        distributed.step(context, {.lr = 0.001});
      }
    });
  for (auto& trainer : trainers) trainer.join();
  EXPECT_EQ(optimizers[0]->steps(), 40);
  EXPECT_TRUE(near(layers[0]->weight, before - 0.001 * 10 * (1 + 2 + 3 + 4), 1e-9));
}

TEST_F(rpc_training_optimizer, a_step_of_another_trainer_is_no_error_of_a_backward_under_way) {
  for (const bool ours : {true, false}) {
    layers.clear();
    optimizers.clear();
    workers.clear();
    if (ours)
      start(sgd);
    else
      start(torch_adam);
    const auto distributed = optimizer();
    Context slow(me());
    const Tensor waits = loss(x);
    std::thread other([&] {
      Context context(me());
      context.backward({loss(x)});
      distributed.step(context, {.lr = 0.1});
    });
    other.join();
    EXPECT_NO_THROW(slow.backward({waits}));
    EXPECT_NO_THROW(distributed.step(slow, {.lr = 0.1}));
    EXPECT_EQ(optimizers[0]->steps(), 2);
  }
}

TEST_F(rpc_training_optimizer, its_state_is_saved_and_loaded_by_each_owner) {
  start(adamw);
  const auto distributed = optimizer();
  const auto step = [&] {
    Context context(me());
    context.backward({loss(x)});
    distributed.step(context, {.lr = 0.01});
  };
  step();
  step();
  std::vector<Kept> kept(3);
  std::vector<Tensor> weights;
  for (size_t i = 0; i < 3; ++i) {
    optimizers[i]->state(kept[i]);
    weights.push_back(layers[i]->weight.detach().clone());
    weights.push_back(layers[i]->bias.detach().clone());
  }
  step();
  const Tensor wanted = layers[0]->weight.detach().clone();
  for (size_t i = 0; i < 3; ++i) {
    kept[i].turn();
    optimizers[i]->state(kept[i]);
    layers[i]->weight.variable_data().copy_(weights[2 * i]);
    layers[i]->bias.variable_data().copy_(weights[2 * i + 1]);
    EXPECT_EQ(optimizers[i]->steps(), 2);
  }
  step();
  EXPECT_TRUE(at::equal(layers[0]->weight.detach(), wanted)) << "the same bits";
}

TEST_F(rpc_training_optimizer, gradients_that_are_not_finite_step_nobody) {
  start(sgd);
  const auto distributed = optimizer();
  const Tensor before = layers[0]->weight.detach().clone();
  Context context(me());
  context.backward({loss(x) * std::numeric_limits<double>::infinity()});
  EXPECT_THROW(distributed.step(context, {.lr = 0.1, .max_norm = 1}), NumericError);
  for (const auto& owned : optimizers) EXPECT_EQ(owned->steps(), 0);
  EXPECT_TRUE(at::equal(layers[0]->weight.detach(), before));
}

TEST_F(rpc_training_optimizer, refuses_what_cannot_be) {
  start(sgd);
  auto plain = job.start("plain");
  EXPECT_THROW(DistributedOptimizer(me(), std::vector<std::string>{}), UsageError);
  EXPECT_THROW(DistributedOptimizer(me(), {"server0", "server0"}), UsageError);
  const auto text = text_of<UsageError>([&] { DistributedOptimizer(me(), {"plain"}); });
  EXPECT_NE(text.find("worker 'plain' has no optimizer: let it offer"), text.npos) << text;
  EXPECT_THROW(OwnedOptimizer({{"constant", at::ones({3})}}, sgd), UsageError);
  const auto distributed = optimizer();
  EXPECT_THROW(optimizers[0]->step(0.1, 1), UsageError) << "there is no context here";
  Context context(me());
  EXPECT_THROW(distributed.step(context, {.lr = std::nan("")}), UsageError);
  EXPECT_THROW(distributed.step(context, {.lr = 0.1, .max_norm = -1}), UsageError);
}

TEST_F(rpc_training_optimizer, an_owner_that_is_gone_is_named_and_the_others_step) {
  start(sgd);
  const auto distributed = optimizer();
  Context context(me());
  context.backward({loss(x)});
  job.net->kill("server1");
  const auto text = text_of<PeerLost>([&] { distributed.step(context, {.lr = 0.1}); });
  EXPECT_NE(text.find("server1"), text.npos) << text;
  EXPECT_EQ(optimizers[0]->steps(), 1);
  EXPECT_EQ(optimizers[2]->steps(), 1);
}

}  // namespace trireme::rpc_training_optimizer_test
