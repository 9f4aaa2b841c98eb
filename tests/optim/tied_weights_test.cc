// SPDX-License-Identifier: Apache-2.0
// A parameter that is listed under two names: counted once, stepped once.
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "tests/grad/tied_net.h"
#include "tests/optim/papers.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/command.h"
#include "tests/support/refusals.h"
#include "trireme/comm/start/run.h"
#include "trireme/optim/averaging/model_averaging.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/grad_scaler.h"
#include "trireme/optim/host_optimizer.h"
#include "trireme/optim/master_weights.h"
#include "trireme/tensor/tied_tensors.h"

namespace tied_weights_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// The papers' parameters; `again`: two of them once more, one before all others.
NamedTensors list(at::ScalarType dtype, bool again) {
  NamedTensors all = start(dtype);
  if (!again) return all;
  all.push_back({"again", all[0].second});
  all.push_back({"z.again", all[3].second});
  return all;
}

void same_gradients(const NamedTensors& to, NamedTensors& from) {
  draw_gradients(from);
  for (size_t i = 0; i < from.size(); ++i)
    to[i].second.mutable_grad() = from[i].second.grad().clone();
}

using Makers = std::map<std::string, trireme::Make>;

Makers all_of_them() {
  Makers makers = every();
  makers["SGD"] = [](const NamedTensors& p) {
    return make_sgd(p, {.momentum = 0.9, .weight_decay = kDecay}, kGroups);
  };
  makers["plain SGD"] = [](const NamedTensors& p) { return make_sgd(p); };
  makers["AdamW"] = [](const NamedTensors& p) { return make_adamw(p, {}, kGroups); };
  return makers;
}

void expect_equal_steps(const std::string& name, const trireme::Make& make, at::ScalarType dtype) {
  NamedTensors twice = list(dtype, true), once = list(dtype, false);
  auto of_twice = make(twice), of_once = make(once);
  EXPECT_EQ(of_twice->table().size(), once.size()) << name;
  for (int t = 0; t < 5; ++t) {
    same_gradients(twice, once);
    of_twice->step(kLr, 0.5);
    of_once->step(kLr, 0.5);
  }
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_TRUE(twice[i].second.equal(once[i].second)) << name << ' ' << once[i].first;
  Collect a, b;
  of_twice->state(a);
  of_once->state(b);
  EXPECT_EQ(a.values, b.values) << name;
  EXPECT_EQ(a.tensors.size(), b.tensors.size()) << name;
}

NamedTensors named(const TiedNet& net) {
  NamedTensors all;
  for (const auto& item : net->named_parameters()) all.emplace_back(item.key(), item.value());
  return all;
}

}  // namespace

TEST(optim_tied_weights, every_optimizer_steps_them_once) {
  for (const auto& entry : all_of_them()) {
    const std::string& name = entry.first;
    const trireme::Make& make = entry.second;
    expect_equal_steps(name, make, torch::kFloat);
    expect_equal_steps(
        "masters of " + name,
        [&](const NamedTensors& p) {
          return with_master_weights(p, [&](NamedTensors q) { return make(q); });
        },
        torch::kBFloat16);
    expect_equal_steps(
        "rounded " + name,
        [&](const NamedTensors& p) {
          return without_master_weights(p, [&](NamedTensors q) { return make(q); });
        },
        torch::kBFloat16);
    expect_equal_steps(
        "on the host: " + name,
        [&](const NamedTensors& p) {
          return host_optimizer(p, [&](NamedTensors q) { return make(q); });
        },
        torch::kFloat);
  }
}

TEST(optim_tied_weights, a_tied_model_trains_as_with_torch) {
  auto train = [](TiedNet& net, const std::function<void()>& step) {
    for (int t = 0; t < 5; ++t) {
      net->zero_grad();
      mean_loss(net, tokens(8, t)).backward();
      step();
    }
  };
  for (bool adam : {false, true}) {
    TiedNet want = tied_net(), net = tied_net();
    std::unique_ptr<torch::optim::Optimizer> theirs;
    if (adam)
      theirs =
          std::make_unique<torch::optim::AdamW>(each_once(*want), torch::optim::AdamWOptions(0.01));
    else
      theirs = std::make_unique<torch::optim::SGD>(
          each_once(*want), torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(0.1));
    auto ours = adam ? make_adamw(named(net))
                     : make_sgd(named(net), {.momentum = 0.9, .weight_decay = 0.1});
    train(want, [&] { theirs->step(); });
    train(net, [&] { ours->step(0.01); });
    expect_tied_as(net, want, 1e-12, adam ? "AdamW: " : "SGD: ");
  }
}

TEST(optim_tied_weights, patterns_match_any_of_the_names) {
  const std::vector<OptionGroup> by_other = {{"again", 0.0, 0.5}},
                                 by_first = {{"a.weight", 0.0, 0.5}};
  const std::vector<std::string> other = {"z.*"}, first = {"b.weight"};
  using Pair = std::pair<trireme::Make, trireme::Make>;
  const std::map<std::string, Pair> makers = {
      {"SGD",
       {[&](const NamedTensors& p) { return make_sgd(p, {.weight_decay = 1}, by_other); },
        [&](const NamedTensors& p) { return make_sgd(p, {.weight_decay = 1}, by_first); }}},
      {"LARS",
       {[&](const NamedTensors& p) { return make_lars(p, {.no_adapt = other}, by_other); },
        [&](const NamedTensors& p) { return make_lars(p, {.no_adapt = first}, by_first); }}},
      {"LAMB",
       {[&](const NamedTensors& p) { return make_lamb(p, {.no_adapt = other}, by_other); },
        [&](const NamedTensors& p) { return make_lamb(p, {.no_adapt = first}, by_first); }}}};
  for (const auto& [name, pair] : makers)
    for (bool masters : {false, true}) {
      const auto type = masters ? torch::kBFloat16 : torch::kFloat;
      auto made = [masters = masters](const trireme::Make& make, const NamedTensors& p) {
        if (!masters) return make(p);
        return with_master_weights(p, [&](NamedTensors q) { return make(q); });
      };
      NamedTensors twice = list(type, true), once = list(type, false);
      auto a = made(pair.first, twice), b = made(pair.second, once);
      for (int t = 0; t < 3; ++t) {
        same_gradients(twice, once);
        a->step(0.1);
        b->step(0.1);
      }
      for (size_t i = 0; i < once.size(); ++i)
        EXPECT_TRUE(twice[i].second.equal(once[i].second)) << name << ' ' << once[i].first;
    }
}

TEST(optim_tied_weights, the_norm_counts_them_once) {
  TiedNet net = tied_net(), twin = tied_net();
  mean_loss(net, tokens(8)).backward();
  mean_loss(twin, tokens(8)).backward();
  const double want = torch::nn::utils::clip_grad_norm_(each_once(*twin), 0.1);
  const GradNorm got = grad_norm(named(net), 0.1);
  EXPECT_NEAR(got.norm / want, 1, 1e-6);
  // By parts that are made of the one list or of the other.
  EXPECT_EQ(grad_norm(named(net), NormParts(named_parameters(*net)), 0.1, 1).norm, got.norm);
  EXPECT_EQ(grad_norm(named_parameters(*net), NormParts(named(net)), 0.1, 1).norm, got.norm);
  EXPECT_EQ(first_non_finite(named(net)), "");
  net->again->bias.mutable_grad().fill_(NAN);
  EXPECT_EQ(first_non_finite(named(net)), "first.bias");
}

TEST(optim_tied_weights, the_norm_is_that_of_pythons_clip_grad_norm) {
  const char* script = R"(
import sys
try:
    import torch
except ImportError:
    sys.exit(77)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(7, 5)
        self.between = torch.nn.Linear(5, 5, bias=False)
        self.head = torch.nn.Linear(5, 7, bias=False)
        self.head.weight = self.emb.weight
net = Net().double()
with torch.no_grad():
    net.emb.weight.copy_(torch.arange(35, dtype=torch.double).sin().view(7, 5))
    net.between.weight.copy_(torch.arange(25, dtype=torch.double).cos().view(5, 5))
net.head(torch.tanh(net.between(net.emb(torch.arange(7))))).pow(2).sum().backward()
print(repr(torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).item()))
)";
  Command python({"/usr/bin/python3", "-c", script});
  const int status = python.finish(std::chrono::seconds(180));
  if (status == 77) GTEST_SKIP() << "python3-torch is not installed";
  ASSERT_EQ(status, 0) << python.err;
  const at::Tensor emb = at::arange(35, at::kDouble).sin().view({7, 5}).requires_grad_(),
                   between = at::arange(25, at::kDouble).cos().view({5, 5}).requires_grad_();
  at::matmul(at::tanh(at::matmul(at::embedding(emb, at::arange(7, at::kLong)), between.t())),
             emb.t())
      .pow(2)
      .sum()
      .backward();
  const NamedTensors all = {{"emb.weight", emb}, {"between.weight", between}, {"head.weight", emb}};
  EXPECT_NEAR(grad_norm(all).norm / std::stod(python.out), 1, 1e-9) << python.out;
}

TEST(optim_tied_weights, the_loss_scale_is_taken_out_once) {
  TiedNet net = tied_net(), twin = tied_net();
  GradScaler scaler({.initial = 8});
  scaler.scale(mean_loss(net, tokens(8))).backward();
  mean_loss(twin, tokens(8)).backward();
  EXPECT_TRUE(scaler.unscale_(named(net)).finite);
  expect_gradients(*net, *twin);
}

TEST(optim_tied_weights, averaging_and_diloco_take_each_once) {
  for (bool outer : {false, true})
    run_threads(2, [&](Group g) {
      TiedNet twice = tied_net(), once = tied_net();
      auto make = [&](TiedNet& net, const NamedTensors& list, const NamedTensors& buffers) {
        net->scale.fill_(g.rank());
        return outer ? diloco(list, g, {.period = 2}, buffers)
                     : average_periodically(list, g, {.period = 2}, buffers);
      };
      auto a = make(twice, named(twice),
                    {{"s", twice->scale}, {"t", twice->scale}, {"head", twice->head}});
      auto b = make(once, named_parameters(*once), {{"s", once->scale}});
      for (int t = 0; t < 4; ++t) {
        at::NoGradGuard no_grad;
        for (auto* net : {&twice, &once})
          for (auto& p : each_once(**net)) p.add_(0.1 * (g.rank() + 1));
        a->step();
        b->step();
      }
      expect_tied_as(twice, once, 0);
      expect(twice->scale.equal(once->scale) && twice->scale.item<double>() == 0.5, "buffer");
    });
}

TEST(optim_tied_weights, two_tensors_in_one_memory_step_as_torchs_do) {
  auto both = [] {
    at::Tensor a = at::arange(6, at::kFloat).sin().requires_grad_(),
               b = at::zeros({6}).requires_grad_();
    b.set_data(a);
    return NamedTensors{{"a", a}, {"b", b}};
  };
  NamedTensors ours = both(), theirs = both();
  auto optimizer = make_sgd(ours);
  torch::optim::SGD reference({theirs[0].second, theirs[1].second}, torch::optim::SGDOptions(0.1));
  for (auto* l : {&ours, &theirs})
    for (size_t i = 0; i < 2; ++i)
      (*l)[i].second.mutable_grad() = at::full({6}, 1.0 + static_cast<double>(i));
  optimizer->step(0.1);
  reference.step();
  EXPECT_TRUE(ours[0].second.allclose(theirs[0].second));
  // Who keeps a copy of each cannot: one of two copies would be lost.
  for (auto& [name, p] : ours) p.mutable_grad() = at::Tensor();
  const MakeOptimizer sgd = [](NamedTensors p) { return make_sgd(std::move(p)); };
  const std::string host = refusal([&] { host_optimizer(ours, sgd); });
  EXPECT_TRUE(has(host, "'b' shares memory with 'a'")) << host;
  at::Tensor half = at::zeros({6}, at::kBFloat16);
  const std::string masters = refusal([&] {
    with_master_weights({{"h", half}, {"part", half.narrow(0, 2, 2)}}, sgd);
  });
  EXPECT_TRUE(has(masters, "'part' shares memory with 'h'")) << masters;
}

}  // namespace tied_weights_test
