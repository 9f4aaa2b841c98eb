// SPDX-License-Identifier: Apache-2.0
// A torch::optim optimizer that is saved and loaded goes on with the bits of one that was not.
#include "trireme/optim/torch_optimizer_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/comm/start/run.h"
#include "trireme/optim/schedule/torch_schedulers.h"

namespace trireme::testing::torch_optimizer_state_test {
namespace {

using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::LBFGS;
using torch::optim::OptimizerParamGroup;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;
using Optimizers = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int seed, at::ScalarType dtype = at::kFloat) {
    torch::manual_seed(seed);
    in = register_module("in", torch::nn::Linear(3, 4));
    unused = register_parameter("unused", torch::randn({2}));
    out = register_module("out", torch::nn::Linear(4, 2));
    to(dtype);
  }
  at::Tensor forward(const at::Tensor& x) { return out(torch::tanh(in(x))); }
  torch::nn::Linear in{nullptr}, out{nullptr};
  at::Tensor unused;
};
TORCH_MODULE(Net);

void steps(Net& net, torch::optim::Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = (torch::arange(12.).view({4, 3}) * 0.1 + step).sin();
    net->forward(x.to(net->in->weight.scalar_type())).pow(2).sum().backward();
    optimizer.step();
  }
}

template <class Optimizer, class Options>
Optimizers of(const Options& options) {
  return [options](std::vector<at::Tensor> p) {
    return std::make_unique<Optimizer>(std::move(p), options);
  };
}

std::vector<Optimizers> every_optimizer() {
  return {
      of<SGD>(SGDOptions(0.1)),
      of<SGD>(SGDOptions(0.1).momentum(0.9)),
      of<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5).weight_decay(0.1)),
      of<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true)),
      of<Adam>(AdamOptions(0.1).weight_decay(0.01)),
      of<Adam>(AdamOptions(0.1).amsgrad(true)),
      of<AdamW>(AdamWOptions(0.1).betas({0.8, 0.95}).eps(1e-6)),
      of<AdamW>(AdamWOptions(0.1).amsgrad(true)),
      of<RMSprop>(RMSpropOptions(0.1).alpha(0.9)),
      of<RMSprop>(RMSpropOptions(0.1).centered(true).momentum(0.9)),
      of<Adagrad>(AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.2)),
  };
}

void expect_same_bits(const Net& got, const Net& want, const std::string& what) {
  const auto wanted = want->named_parameters();
  for (const auto& p : got->named_parameters())
    EXPECT_TRUE(torch::equal(p.value(), wanted[p.key()])) << what << ": " << p.key();
}

StateWalk both(Net& net, torch::optim::Optimizer& optimizer) {
  return all_of({trireme::state_of(net), trireme::state_of(optimizer, net)});
}

}  // namespace

TEST(optim_torch_optimizer_state, a_loaded_optimizer_goes_on_with_the_same_bits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int saved_at : {0, 1, 3}) {
      size_t number = 0;
      for (const Optimizers& make : every_optimizer()) {
        const std::string what = fmt::format("optimizer {} saved after {} steps in {}", number++,
                                             saved_at, c10::toString(dtype));
        SCOPED_TRACE(what);
        PrivateFolder folder;
        Net plain(1, dtype), stopped(1, dtype), resumed(2, dtype);
        const auto plain_optimizer = make(plain->parameters());
        steps(plain, *plain_optimizer, 0, 6);

        const auto stopped_optimizer = make(stopped->parameters());
        steps(stopped, *stopped_optimizer, 0, saved_at);
        save(folder.path(), saved_at, both(stopped, *stopped_optimizer));

        const auto resumed_optimizer = make(resumed->parameters());
        EXPECT_EQ(load(folder.path(), both(resumed, *resumed_optimizer)).step, saved_at);
        steps(resumed, *resumed_optimizer, saved_at, 6);
        expect_same_bits(resumed, plain, what);
      }
    }
}

TEST(optim_torch_optimizer_state, saving_changes_nothing_of_what_comes_after) {
  for (const Optimizers& make : every_optimizer()) {
    PrivateFolder folder;
    Net plain(1), saving(1);
    const auto a = make(plain->parameters()), b = make(saving->parameters());
    steps(plain, *a, 0, 4);
    for (int step = 0; step < 4; ++step) {
      save(folder.path(), step, both(saving, *b));
      steps(saving, *b, step, step + 1);
    }
    expect_same_bits(saving, plain, "saved before each step");
  }
}

// A run that went on too far goes back, to a step at which the optimizer had no state yet.
TEST(optim_torch_optimizer_state, a_load_takes_away_state_that_was_not_there_when_it_was_saved) {
  for (const Optimizers& make : every_optimizer()) {
    PrivateFolder folder;
    Net plain(1), back(1);
    const auto a = make(plain->parameters()), b = make(back->parameters());
    save(folder.path(), 0, both(back, *b));
    steps(back, *b, 2, 5);
    load(folder.path(), both(back, *b));
    steps(plain, *a, 0, 3);
    steps(back, *b, 0, 3);
    expect_same_bits(back, plain, "gone back");
  }
}

// What a rank loads takes away the state by which the walk shows a frozen parameter at all.
TEST(optim_torch_optimizer_state,
     ranks_go_back_to_where_a_parameter_that_is_frozen_now_had_no_state) {
  for (const Optimizers& make : every_optimizer()) {
    PrivateFolder folder;
    Net plain(1);
    const auto a = make(plain->parameters());
    save(folder.path(), 0, both(plain, *a));
    for (const bool check_first : {false, true})
      run_threads(2, [&](Group g) {
        Net back(1);
        const auto b = make(back->parameters());
        steps(back, *b, 2, 5);
        back->in->weight.set_requires_grad(false);
        load(folder.path(), both(back, *b), g, {.check_first = check_first});
        expect_same_bits(back, plain, "gone back");
      });
  }
}

TEST(optim_torch_optimizer_state, options_are_restored_by_group_and_so_is_a_schedule) {
  PrivateFolder folder;
  const auto groups = [](Net& net, double lr) {
    return std::vector<OptimizerParamGroup>{
        OptimizerParamGroup(net->in->parameters(), std::make_unique<AdamWOptions>(lr)),
        OptimizerParamGroup(net->out->parameters(), std::make_unique<AdamWOptions>(lr * 10))};
  };
  const auto rate = [](AdamW& o, size_t g) { return o.param_groups()[g].options().get_lr(); };
  Net a(1), b(2);
  AdamW first(groups(a, 0.01), AdamWOptions(1.0)), second(groups(b, 0.5), AdamWOptions(1.0));
  static_cast<AdamWOptions&>(first.param_groups()[1].options()).betas({0.7, 0.8}).weight_decay(0.3);
  lr_scheduler::StepLR schedule(first, 2, 0.5), other(second, 2, 0.5);
  for (int step = 0; step < 3; ++step) {
    steps(a, first, step, step + 1);
    schedule.step();
  }
  save(folder.path(), 3, all_of({both(a, first), trireme::state_of(schedule)}));
  load(folder.path(), all_of({both(b, second), trireme::state_of(other)}));
  EXPECT_EQ(rate(second, 0), 0.005);
  EXPECT_EQ(rate(second, 1), 0.05);
  const auto& options = static_cast<AdamWOptions&>(second.param_groups()[1].options());
  EXPECT_EQ(options.betas(), std::make_tuple(0.7, 0.8));
  EXPECT_EQ(options.weight_decay(), 0.3);
  EXPECT_EQ(other.last_epoch(), 3);
  steps(a, first, 3, 5);
  steps(b, second, 3, 5);
  expect_same_bits(b, a, "two groups");
}

TEST(optim_torch_optimizer_state, a_save_leaves_rates_that_the_loop_has_set_itself) {
  PrivateFolder folder;
  Net net(1);
  SGD optimizer(net->parameters(), SGDOptions(1.0));
  lr_scheduler::StepLR schedule(optimizer, 10);
  optimizer.param_groups()[0].options().set_lr(0.25);
  save(folder.path(), 0, trireme::state_of(schedule));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
}

TEST(optim_torch_optimizer_state, another_optimizer_is_refused_by_name_before_anything_is_written) {
  PrivateFolder folder;
  Net net(1), other(2);
  AdamW optimizer(net->parameters(), AdamWOptions(0.1));
  steps(net, optimizer, 0, 1);
  save(folder.path(), 1, both(net, optimizer));
  const at::Tensor before = other->in->weight.detach().clone();
  const auto refused = [&](torch::optim::Optimizer& o) {
    return refusal([&] { load(folder.path(), both(other, o)); });
  };
  Adam adam(other->parameters(), AdamOptions(0.1));
  EXPECT_TRUE(has(refused(adam), "'optim.type' is 'AdamW' there and 'Adam' here"));
  SGD sgd(other->parameters(), SGDOptions(0.1));
  EXPECT_TRUE(has(refused(sgd), "'optim.type' is 'AdamW' there and 'SGD' here"));
  AdamW amsgrad(other->parameters(), AdamWOptions(0.1).amsgrad(true));
  EXPECT_TRUE(has(refused(amsgrad), "amsgrad' is 'false' there and 'true' here"));
  AdamW two(
      {OptimizerParamGroup(other->in->parameters()), OptimizerParamGroup(other->out->parameters())},
      AdamWOptions(0.1));
  EXPECT_TRUE(has(refused(two), "'optim.groups' is '1' there and '2' here"));
  EXPECT_TRUE(torch::equal(other->in->weight, before));
}

TEST(optim_torch_optimizer_state, momentum_that_one_of_both_has_is_refused_by_name) {
  PrivateFolder folder;
  Net net(1);
  SGD with(net->parameters(), SGDOptions(0.1).momentum(0.9)),
      without(net->parameters(), SGDOptions(0.1));
  save(folder.path(), 0, both(net, with));
  EXPECT_TRUE(has(refusal([&] { load(folder.path(), both(net, without)); }),
                  "holds tensor 'optim.momentum_buffer."));
}

TEST(optim_torch_optimizer_state, lbfgs_and_tensors_of_another_module_are_refused_by_name) {
  PrivateFolder folder;
  Net net(1), other(1);
  LBFGS lbfgs(net->parameters());
  EXPECT_TRUE(has(refusal([&] { save(folder.path(), 0, both(net, lbfgs)); }), "LBFGS"));
  SGD sgd(other->parameters(), SGDOptions(0.1));
  EXPECT_TRUE(has(refusal([&] { save(folder.path(), 0, both(net, sgd)); }),
                  "tensor 0 of the optimizer's group 0 is not a parameter of the module"));
}

TEST(optim_torch_optimizer_state, frozen_parameters_have_no_state_and_keep_their_weights) {
  PrivateFolder folder;
  for (const Optimizers& make : every_optimizer()) {
    Net plain(1), stopped(1), resumed(2);
    for (Net* net : {&plain, &stopped, &resumed}) (*net)->in->weight.set_requires_grad(false);
    const auto a = make(plain->parameters()), b = make(stopped->parameters()),
               c = make(resumed->parameters());
    steps(plain, *a, 0, 4);
    steps(stopped, *b, 0, 2);
    save(folder.path(), 2, both(stopped, *b));
    load(folder.path(), both(resumed, *c));
    steps(resumed, *c, 2, 4);
    expect_same_bits(resumed, plain, "frozen");
  }
}

TEST(optim_torch_optimizer_state, two_models_with_an_optimizer_each_lie_under_their_names) {
  PrivateFolder folder;
  const auto state = [](Net& g, Net& d, torch::optim::Optimizer& of_g,
                        torch::optim::Optimizer& of_d) {
    return all_of({named("generator", both(g, of_g)), named("critic", both(d, of_d))});
  };
  Net g(1), d(2), g2(3), d2(4);
  Adam of_g(g->parameters()), of_g2(g2->parameters());
  SGD of_d(d->parameters(), SGDOptions(0.1).momentum(0.5)),
      of_d2(d2->parameters(), SGDOptions(0.1).momentum(0.5));
  steps(g, of_g, 0, 2);
  steps(d, of_d, 0, 2);
  save(folder.path(), 2, state(g, d, of_g, of_d));
  load(folder.path(), state(g2, d2, of_g2, of_d2));
  steps(g, of_g, 2, 4);
  steps(d, of_d, 2, 4);
  steps(g2, of_g2, 2, 4);
  steps(d2, of_d2, 2, 4);
  expect_same_bits(g2, g, "generator");
  expect_same_bits(d2, d, "critic");
}

}  // namespace trireme::testing::torch_optimizer_state_test
