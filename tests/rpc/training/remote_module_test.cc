// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/training/remote_module.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "trireme/optim/clip.h"
#include "trireme/rpc/training/distributed_optimizer.h"

namespace trireme::rpc_training_module_test {
namespace {

using namespace rpc_test;
using rpc::RemoteModule;

std::atomic<int> alive{0};

struct Encoder : torch::nn::Module {
  Encoder(int64_t inputs, int64_t outputs, double scale) {
    if (inputs <= 0) throw std::invalid_argument("an encoder needs inputs");
    weight = register_parameter(
        "weight", scale * at::arange(inputs * outputs, at::kDouble).reshape({inputs, outputs}));
    frozen = register_parameter("frozen", at::ones({outputs}, at::kDouble), false);
    calls = register_buffer("calls", at::zeros({}, at::kLong));
    ++alive;
  }
  ~Encoder() override { --alive; }
  Tensor forward(const Tensor& x, double times) {
    calls.add_(1);
    const Tensor y = x.matmul(weight) * times + frozen;
    return is_training() ? y : y.detach();
  }
  Tensor weight, frozen, calls;
};
TRIREME_REMOTE_MODULE(encoder, Encoder, int64_t, int64_t, double);

/// Another program's.
namespace elsewhere {
struct Other : torch::nn::Module {
  explicit Other(const std::string&) {}
  Tensor forward(const Tensor& x) { return x; }
};
TRIREME_REMOTE_MODULE(encoder, Other, std::string);
}  // namespace elsewhere

// What is wrong does not compile.
static_assert(std::is_constructible_v<RemoteModule<encoder>, rpc::Peer, int, int, double>);
static_assert(!std::is_constructible_v<RemoteModule<encoder>, rpc::Peer, int, int>);
static_assert(!std::is_constructible_v<RemoteModule<encoder>, rpc::Peer, std::string, int, double>);
template <class M, class... A>
concept CanForward = requires(const M& module, A... arguments) {
  module.forward(arguments...);
};
static_assert(CanForward<RemoteModule<encoder>, Tensor, double>);
static_assert(!CanForward<RemoteModule<encoder>, Tensor>);

class rpc_training_module : public ::testing::Test {
 protected:
  rpc::Worker start_server(const std::string& name) {
    return start_with_autograd(job, name,
                               {rpc::offer_modules<encoder>({.optimizer = [](NamedTensors own) {
                                 return make_sgd(std::move(own), {.momentum = 0.9});
                               }})});
  }
  void TearDown() override {
    EXPECT_TRUE(comes_about([] { return alive == 0; }));
  }

  Job job{50us, 19};
  rpc::Worker server = start_server("server0"), other = start_server("server1");
  rpc::Worker me = start_with_autograd(job, "trainer0");
  const Tensor x = leaf({1, -2});
};

}  // namespace

TEST_F(rpc_training_module, is_made_there_and_has_the_results_and_gradients_of_a_local_one) {
  const RemoteModule<encoder> part(me.peer("server0"), 2, 3, 0.5);
  EXPECT_EQ(part.worker(), "server0");
  Encoder local(2, 3, 0.5);
  Context context(me);
  const Tensor y = part.forward(x, 2);
  const Tensor wanted = local.forward(x, 2);
  EXPECT_TRUE(near(y, wanted));
  context.backward({(y * y).sum()});
  const auto gradients = torch::autograd::grad({(wanted * wanted).sum()}, {x, local.weight});
  EXPECT_TRUE(near(context.gradient(x), gradients[0]));
  const auto there = rpc::autograd::gradients(server, context.id());
  ASSERT_EQ(there.size(), 1u) << "what is frozen has none";
  EXPECT_TRUE(near(there[0].second, gradients[1]));
}

TEST_F(rpc_training_module, two_on_two_workers_train_as_one_model) {
  const RemoteModule<encoder> one(me.peer("server0"), 2, 3, 0.1),
      two(me.peer("server1"), 3, 1, 0.2);
  const rpc::DistributedOptimizer optimizer({one.optimizer(), two.optimizer()});
  Encoder first(2, 3, 0.1), second(3, 1, 0.2);
  const auto alone =
      make_sgd({{"first", first.weight}, {"second", second.weight}}, {.momentum = 0.9});
  for (int step = 0; step < 8; ++step) {
    Context context(me);
    context.backward({two.forward(one.forward(x, 1).tanh(), 1).sum()});
    optimizer.step(context, {.lr = 0.05, .max_norm = 1});
    alone->zero_grad(true);
    second.forward(first.forward(x, 1).tanh(), 1).sum().backward();
    const GradNorm norm = grad_norm({{"first", first.weight}, {"second", second.weight}}, 1);
    alone->step(0.05, norm.coefficient);
  }
  EXPECT_TRUE(near(one.state_dict().at("weight"), first.weight.detach()));
  EXPECT_TRUE(near(two.state_dict().at("weight"), second.weight.detach()));
}

TEST_F(rpc_training_module, several_calls_may_be_under_way) {
  const RemoteModule<encoder> part(me.peer("server0"), 2, 3, 1.0);
  std::vector<rpc::Future<Tensor>> futures;
  for (int i = 0; i < 50; ++i) futures.push_back(part.forward_async(x.detach(), i));
  Encoder local(2, 3, 1.0);
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(near(futures[static_cast<size_t>(i)].get(), local.forward(x, i).detach()));
}

TEST_F(rpc_training_module, its_state_is_saved_and_loaded_by_name) {
  const RemoteModule<encoder> part(me.peer("server0"), 2, 3, 1.0),
      same(me.peer("server1"), 2, 3, 0.0);
  part.forward(x, 1);
  const rpc::StateDict state = part.state_dict();
  EXPECT_EQ(state.size(), 3u);
  EXPECT_EQ(state.at("calls").item<int64_t>(), 1);
  same.load_state_dict(state);
  EXPECT_TRUE(at::equal(same.state_dict().at("weight"), state.at("weight")));
  EXPECT_EQ(same.state_dict().at("calls").item<int64_t>(), 1);
  // Nothing changes where something does not fit.
  rpc::StateDict wrong = state;
  wrong["weight"] = at::zeros({5});
  auto text = text_of<Mismatch>([&] { same.load_state_dict(wrong); });
  EXPECT_NE(text.find("'weight' has other sizes"), text.npos) << text;
  wrong = state;
  wrong.erase("frozen");
  wrong["weight"] = at::zeros({2, 3}, at::kDouble);
  text = text_of<Mismatch>([&] { same.load_state_dict(wrong); });
  EXPECT_NE(text.find("'frozen' of the module is not in the state"), text.npos) << text;
  wrong = state;
  wrong["more"] = at::zeros({1});
  EXPECT_THROW(same.load_state_dict(wrong), Mismatch);
  EXPECT_TRUE(at::equal(same.state_dict().at("weight"), state.at("weight")));
}

TEST_F(rpc_training_module, tells_its_parameters_and_trains_or_evaluates) {
  const RemoteModule<encoder> part(me.peer("server0"), 2, 3, 1.0);
  const auto parameters = part.parameter_info();
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_EQ(parameters[0].name, "weight");
  EXPECT_EQ(parameters[0].sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(parameters[0].requires_grad);
  EXPECT_FALSE(parameters[1].requires_grad);
  Context context(me);
  part.eval();
  EXPECT_FALSE(part.forward(x, 1).requires_grad());
  part.train();
  EXPECT_TRUE(part.forward(x, 1).requires_grad());
}

TEST_F(rpc_training_module, what_its_constructor_and_its_forward_throw_is_told) {
  try {
    RemoteModule<encoder>(me.peer("server0"), 0, 3, 1.0);
    FAIL() << "nothing was thrown";
  } catch (const rpc::RemoteError& error) {
    EXPECT_EQ(error.type(), "std::invalid_argument");
    EXPECT_EQ(error.text(), "an encoder needs inputs");
  }
  const RemoteModule<encoder> part(me.peer("server0"), 2, 3, 1.0);
  EXPECT_THROW(part.forward(at::ones({7}, at::kDouble), 1), rpc::RemoteError);
  EXPECT_NO_THROW(part.forward(x, 1)) << "it is there all the same";
}

TEST_F(rpc_training_module, a_worker_makes_only_what_it_offers) {
  auto text =
      text_of<UsageError>([&] { RemoteModule<encoder>(server.peer("trainer0"), 2, 3, 1.0); });
  EXPECT_NE(
      text.find("worker 'trainer0' makes no modules 'encoder': add rpc::offer_modules<encoder>()"),
      text.npos)
      << text;
  text = text_of<Mismatch>(
      [&] { RemoteModule<elsewhere::encoder>(me.peer("server0"), std::string("rm -rf")); });
  EXPECT_NE(text.find("use the same program everywhere"), text.npos) << text;
  EXPECT_EQ(alive, 0);
}

TEST_F(rpc_training_module, is_let_go_of_with_its_last_handle) {
  {
    std::optional<RemoteModule<encoder>> part(std::in_place, me.peer("server0"), 2, 3, 1.0);
    const RemoteModule<encoder> copy = *part;
    part.reset();
    EXPECT_EQ(alive, 1);
    EXPECT_NO_THROW(copy.forward(x, 1));
  }
  EXPECT_TRUE(comes_about([] { return alive == 0; }));
}

TEST_F(rpc_training_module, is_let_go_of_when_its_maker_is_gone) {
  auto maker = start_with_autograd(job, "trainer1");
  const RemoteModule<encoder> lost(maker.peer("server0"), 2, 3, 1.0);
  const RemoteModule<encoder> kept(me.peer("server0"), 2, 3, 1.0);
  EXPECT_EQ(alive, 2);
  job.net->kill("trainer1");
  EXPECT_TRUE(comes_about([] { return alive == 1; }));
  EXPECT_NO_THROW(kept.forward(x, 1));
  EXPECT_THROW(lost.forward(x, 1), Error);
}

TEST_F(rpc_training_module, at_a_worker_that_dies_fails_by_name) {
  const RemoteModule<encoder> part(me.peer("server1"), 2, 3, 1.0);
  job.net->kill("server1");
  const auto text = text_of<PeerLost>([&] { part.forward(x, 1); });
  EXPECT_NE(text.find("server1"), text.npos) << text;
  other.shutdown({.graceful = false, .deadline = 0s});
}

TEST_F(rpc_training_module, without_an_optimizer_there_is_none_to_step) {
  auto third = start_with_autograd(job, "server2", {rpc::offer_modules<encoder>()});
  const RemoteModule<encoder> part(me.peer("server2"), 2, 3, 1.0);
  Context context(me);
  const rpc::DistributedOptimizer optimizer({part.optimizer()});
  const auto text = text_of<UsageError>([&] { optimizer.step(context, {.lr = 0.1}); });
  EXPECT_NE(text.find("module 'encoder' has no optimizer here"), text.npos) << text;
}

}  // namespace trireme::rpc_training_module_test
