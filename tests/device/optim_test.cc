// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <set>
#include <string>

#include "tests/optim/state_visitors.h"
#include "tests/optim/twins.h"
#include "tests/support/parameters.h"
#include "tests/support/pretend_device/called.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/grad_scaler.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/finite.h"

// Optimizers, clipping and loss scaling on a device: the CPU's bits, and as few waits as may be.
namespace trireme::device_optim_test {
namespace {

using trireme::testing::give_gradients;
using trireme::testing::outcome_of;
using trireme::testing::some_parameters;

NamedTensors parameters(at::ScalarType type, at::Device device) {
  return some_parameters(type, device, {{33, 170}, {5}, {2, 3, 4}, {1}, {1024}, {0}});
}

struct Maker {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(NamedTensors)> make;
  int waits = 0;    // of a step
  double near = 0;  // 0: the CPU's bits
};

// LAMB and LARS adapt to norms, which the host learns in one transfer. Adafactor's means over rows
// and columns are added in another order than the CPU's.
const std::vector<Maker> kMakers = {
    {"SGD",
     [](NamedTensors p) {
       return make_sgd(std::move(p), {0.9, 0.01, true});
     }},
    {"plain SGD", [](NamedTensors p) { return make_sgd(std::move(p)); }},
    {"AdamW", [](NamedTensors p) { return make_adamw(std::move(p)); }},
    {"Adam",
     [](NamedTensors p) {
       return make_adamw(std::move(p), {.weight_decay = 0.1, .decoupled = false});
     }},
    {"AMSGrad", [](NamedTensors p) { return make_adamw(std::move(p), {.amsgrad = true}); }},
    {"AdaMod", [](NamedTensors p) { return make_adamod(std::move(p), {.weight_decay = 0.1}); }},
    {"Lion", [](NamedTensors p) { return make_lion(std::move(p), {.weight_decay = 0.1}); }},
    {"RMSprop",
     [](NamedTensors p) {
       return make_rmsprop(std::move(p), {.weight_decay = 0.1, .momentum = 0.9, .centered = true});
     }},
    {"Adagrad", [](NamedTensors p) { return make_adagrad(std::move(p), {.weight_decay = 0.1}); }},
    {"LARS", [](NamedTensors p) { return make_lars(std::move(p)); }, 1},
    {"LAMB", [](NamedTensors p) { return make_lamb(std::move(p)); }, 1},
    {"Adafactor", [](NamedTensors p) { return make_adafactor(std::move(p)); }, 0, 1e-5},
};

void expect_equal(const at::Tensor& got, const at::Tensor& want, const Maker& m,
                  const std::string& what) {
  const at::Tensor here = got.detach().cpu();
  if (m.near == 0)
    EXPECT_TRUE(here.equal(want.detach())) << m.name << " " << what;
  else
    EXPECT_TRUE(here.allclose(want.detach(), m.near, m.near)) << m.name << " " << what;
}

/// The step of an optimizer of `count` parameters, launched on the device.
uint64_t operators_of_a_step(const Maker& m, size_t count) {
  const NamedTensors all =
      some_parameters(at::kFloat, pretend::device(), testing::Shapes(count, {7, 30}));
  auto optimizer = m.make(all);
  give_gradients(all, 1);
  const uint64_t before = pretend::counters().operators;
  optimizer->step(0.01, 0.5);
  return pretend::counters().operators - before;
}

uint64_t host_waits() { return pretend::counters().host_waits; }

}  // namespace

TEST(device_optim, every_optimizer_steps_and_keeps_state_as_on_the_cpu) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const Maker& m : kMakers)
      pretend::for_some_seeds(2, [&] {
        NamedTensors there = parameters(type, pretend::device()), here = parameters(type, at::kCPU);
        auto far = m.make(there), near = m.make(here);
        for (int step = 0; step < 4; ++step) {
          give_gradients(there, step);
          give_gradients(here, step);
          const uint64_t before = host_waits();
          if (m.waits == 0) {
            const pretend::NoHostWaits none;
            far->step(0.01, 0.5);
          } else {
            far->step(0.01, 0.5);
          }
          EXPECT_LE(host_waits() - before, static_cast<uint64_t>(m.waits)) << m.name;
          near->step(0.01, 0.5);
        }
        for (size_t i = 0; i < here.size(); ++i)
          expect_equal(there[i].second, here[i].second, m, here[i].first);
        Collect far_state, near_state;
        far->state(far_state);
        near->state(near_state);
        EXPECT_EQ(far_state.tensors.size(), near_state.tensors.size());
        for (const auto& [key, t] : near_state.tensors) {
          EXPECT_EQ(far_state.tensors.at(key).device(), pretend::device()) << m.name << " " << key;
          expect_equal(far_state.tensors.at(key), t, m, key);
        }
      });
}

TEST(device_optim, a_step_of_forty_parameters_launches_what_a_step_of_one_does) {
  for (const Maker& m : kMakers) {
    const uint64_t one = operators_of_a_step(m, 1), forty = operators_of_a_step(m, 40);
    EXPECT_GT(one, 1u) << m.name;
    if (m.waits > 0) {  // the norms, 64 blocks at a time
      EXPECT_LE(forty, 4 * one) << m.name;
    } else if (m.near == 0) {  // Adafactor's rows and columns are of one parameter
      EXPECT_EQ(forty, one) << m.name;
      EXPECT_LE(forty, 24u) << m.name;
    }
  }
}

// LibTorch's calls for many tensors, and not those for a whole step, which round elsewhere
// (docs/devices.md). Adafactor's rows and columns are of one parameter.
TEST(device_optim, a_step_is_of_libtorchs_foreach_calls) {
  for (const Maker& m : kMakers) {
    const NamedTensors all =
        some_parameters(at::kFloat, pretend::device(), testing::Shapes(3, {7, 30}));
    auto optimizer = m.make(all);
    give_gradients(all, 1);
    const std::set<std::string> called = pretend::called_in([&] { optimizer->step(0.01, 0.5); });
    const auto any = [&](const std::string& begin) {
      const auto at = called.lower_bound(begin);
      return at != called.end() && at->starts_with(begin);
    };
    EXPECT_EQ(any("aten::_foreach_"), m.near == 0) << m.name;
    EXPECT_FALSE(any("aten::_fused_")) << m.name;
  }
}

// More elements than one list may have, parameters without elements among them, and options of
// their own: in lists, and each by itself.
TEST(device_optim, lists_end_where_they_are_large_and_parameters_keep_their_options) {
  const auto make = [](NamedTensors p) {
    return make_adamw(std::move(p), {.weight_decay = 0.1, .decoupled = false},
                      {{"p0", 0.0, 2.0}, {"p3", 0.3}, {"p4", 0.0}});
  };
  const testing::Shapes shapes = {{0}, {1 << 23}, {1 << 23}, {5}, {0}, {(1 << 24) + 8}, {3}, {0}};
  NamedTensors there = some_parameters(at::kFloat, pretend::device(), shapes),
               here = some_parameters(at::kFloat, at::kCPU, shapes);
  auto far = make(there), near = make(here);
  give_gradients(there, 0);
  give_gradients(here, 0);
  far->step(0.01, 0.5);
  near->step(0.01, 0.5);
  for (size_t i = 0; i < here.size(); ++i)
    EXPECT_TRUE(there[i].second.detach().cpu().equal(here[i].second.detach())) << i;
}

TEST(device_optim, a_graph_that_has_saved_a_parameter_notices_the_step) {
  const NamedTensors all = some_parameters(at::kFloat, pretend::device(), {{4}, {3}});
  give_gradients(all, 1);
  for (const Maker& m : kMakers) {
    const at::Tensor loss = (all[1].second * all[1].second).sum();
    m.make(all)->step(0.01);
    EXPECT_NE(outcome_of([&] { loss.backward(); }).find("modified by an inplace operation"),
              std::string::npos)
        << m.name;
  }
}

TEST(device_optim, half_gradients_of_float32_parameters_step_as_on_the_cpu) {
  for (const Maker& m : kMakers) {
    NamedTensors there = parameters(at::kFloat, pretend::device()),
                 here = parameters(at::kFloat, at::kCPU);
    auto far = m.make(there), near = m.make(here);
    for (int step = 0; step < 2; ++step) {
      for (auto* list : {&there, &here}) {
        give_gradients(*list, step);
        for (const size_t i : {0u, 1u, 4u}) {
          at::Tensor& g = (*list)[i].second.mutable_grad();
          g = g.to(i == 4 ? at::kHalf : at::kBFloat16);
        }
      }
      far->step(0.01, 0.5);
      near->step(0.01, 0.5);
    }
    for (size_t i = 0; i < here.size(); ++i)
      expect_equal(there[i].second, here[i].second, m, here[i].first);
  }
}

TEST(device_optim, masters_of_half_weights_step_as_on_the_cpu) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const Maker& m : kMakers) {
      if (m.near != 0) continue;  // which half value is nearest may then differ
      NamedTensors there = parameters(type, pretend::device()), here = parameters(type, at::kCPU);
      auto far = with_master_weights(there, m.make), near = with_master_weights(here, m.make);
      for (int step = 0; step < 3; ++step) {
        give_gradients(there, step);
        give_gradients(here, step);
        far->step(0.01, 0.5);
        near->step(0.01, 0.5);
      }
      for (size_t i = 0; i < here.size(); ++i)
        expect_equal(there[i].second, here[i].second, m, here[i].first);
    }
}

TEST(device_optim, they_are_torchs_on_the_same_device) {
  const auto difference = [](auto make_ours, auto make_theirs) {
    Twins twins;
    for (auto& [name, p] : twins.ours) p = p.detach().to(pretend::device()).requires_grad_();
    for (at::Tensor& p : twins.theirs) p = p.detach().to(pretend::device()).requires_grad_();
    auto ours = make_ours(twins.ours);
    auto theirs = make_theirs(twins.theirs);
    double worst = 0;
    for (int step = 0; step < 10; ++step) {
      for (size_t i = 0; i < twins.theirs.size(); ++i) {
        const at::Tensor g = at::randn(twins.theirs[i].sizes()).to(pretend::device());
        twins.theirs[i].mutable_grad() = g;
        twins.ours[i].second.mutable_grad() = g.clone();
      }
      ours->step(1e-2);
      theirs.step();
    }
    for (size_t i = 0; i < twins.theirs.size(); ++i)
      worst = std::max(worst, (twins.ours[i].second.detach().cpu() - twins.theirs[i].detach().cpu())
                                  .abs()
                                  .max()
                                  .item<double>());
    return worst;
  };
  using List = std::vector<at::Tensor>;
  EXPECT_LT(difference([](NamedTensors p) { return make_adamw(p, {.weight_decay = 0.1}); },
                       [](const List& p) {
                         return torch::optim::AdamW(
                             p, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
                       }),
            1e-6);
  EXPECT_LT(difference([](NamedTensors p) { return make_sgd(p, {.momentum = 0.9}); },
                       [](const List& p) {
                         return torch::optim::SGD(p, torch::optim::SGDOptions(1e-2).momentum(0.9));
                       }),
            1e-6);
  EXPECT_LT(difference([](NamedTensors p) { return make_rmsprop(p, {.momentum = 0.9}); },
                       [](const List& p) {
                         return torch::optim::RMSprop(
                             p, torch::optim::RMSpropOptions(1e-2).momentum(0.9));
                       }),
            1e-5);
  EXPECT_LT(difference([](NamedTensors p) { return make_adagrad(p); },
                       [](const List& p) {
                         return torch::optim::Adagrad(p, torch::optim::AdagradOptions(1e-2));
                       }),
            1e-6);
}

TEST(device_optim, the_norm_of_gradients_has_the_cpus_bits_and_costs_one_wait) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    NamedTensors there = parameters(type, pretend::device()), here = parameters(type, at::kCPU);
    // More than is reduced at once.
    for (auto* list : {&there, &here})
      list->emplace_back("large",
                         at::zeros({2050, 1030}, list->front().second.options()).requires_grad_());
    give_gradients(there, 3);
    give_gradients(here, 3);
    pretend::for_some_seeds(2, [&] {
      const uint64_t before = host_waits();
      const GradNorm far = grad_norm(there, 1, 0.5);
      EXPECT_EQ(host_waits() - before, 1u);
      const GradNorm near = grad_norm(here, 1, 0.5);
      EXPECT_EQ(far.norm, near.norm) << type;
      EXPECT_EQ(far.coefficient, near.coefficient);
    });
    for (const double p : {1.0, 3.0, std::numeric_limits<double>::infinity()})
      EXPECT_EQ(clip_grad_norm_(there, 1e9, p), clip_grad_norm_(here, 1e9, p));
    clip_grad_norm_(there, 0.5);
    clip_grad_norm_(here, 0.5);
    if (type != at::kHalf) {  // LibTorch 1.13's CPU clamps no float16
      clip_grad_value_(there, 0.01);
      clip_grad_value_(here, 0.01);
    }
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_TRUE(there[i].second.grad().cpu().equal(here[i].second.grad())) << type << " " << i;
  }
}

TEST(device_optim, what_is_not_finite_is_named_after_one_wait) {
  NamedTensors there = parameters(at::kFloat, pretend::device());
  give_gradients(there, 1);
  const auto named = [&] {
    const uint64_t before = host_waits();
    const std::string name = first_non_finite(there);
    EXPECT_EQ(host_waits() - before, 1u);
    return name;
  };
  EXPECT_EQ(named(), "");
  there[4].second.mutable_grad().fill_(NAN);
  EXPECT_EQ(named(), "p4");
  there[1].second.mutable_grad()[2].fill_(INFINITY);
  EXPECT_EQ(named(), "p1");
  EXPECT_FALSE(grad_norm(there).finite);
  EXPECT_EQ(outcome_of([&] { clip_grad_norm_(there, 1, 2, true); }).find("NumericError"), 0u);
  EXPECT_TRUE(std::isinf(there[1].second.grad().cpu()[2].item<float>()));
  // A mixture: the lowest index, wherever it is.
  const std::vector<at::Tensor> mixed = {at::ones({3}), there[0].second.detach(), at::Tensor(),
                                         at::full({2}, NAN), there[4].second.grad()};
  EXPECT_EQ(first_not_finite(mixed), 3);
  EXPECT_EQ(first_not_finite({there[4].second.grad(), at::full({2}, NAN)}), 0);
  EXPECT_EQ(first_not_finite({at::ones({3}), there[0].second.detach()}), -1);
  EXPECT_EQ(first_not_finite({}), -1);
}

TEST(device_optim, the_loss_scaler_unscales_and_skips_as_on_the_cpu) {
  for (const bool overflow : {false, true}) {
    NamedTensors there = parameters(at::kFloat, pretend::device()),
                 here = parameters(at::kFloat, at::kCPU);
    give_gradients(there, 1);
    give_gradients(here, 1);
    if (overflow)
      for (auto* list : {&there, &here}) (*list)[2].second.mutable_grad().fill_(INFINITY);
    GradScaler far, near;
    const uint64_t before = host_waits();
    const GradVerdict found = far.unscale_(there);
    EXPECT_EQ(host_waits() - before, 1u);
    const GradVerdict expected = near.unscale_(here);
    EXPECT_EQ(found.finite, expected.finite);
    EXPECT_EQ(found.parameter, expected.parameter);
    EXPECT_EQ(found.finite, !overflow);
    far.update(found);
    near.update(expected);
    EXPECT_EQ(far.scale(at::ones({1}, there[0].second.options().requires_grad(false)))
                  .cpu()
                  .item<float>(),
              near.scale(at::ones({1})).item<float>());
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_TRUE(there[i].second.grad().cpu().equal(here[i].second.grad())) << i;
  }
}

TEST(device_optim, a_gradient_on_another_device_is_refused_by_name) {
  NamedTensors there = parameters(at::kFloat, pretend::device());
  give_gradients(there, 1);
  auto adamw = make_adamw(there);
  // As LibTorch lets one assign it.
  EXPECT_NE(outcome_of([&] {
              there[1].second.mutable_grad() = at::ones({5});
              adamw->step(0.01);
            }),
            "");
}

}  // namespace trireme::device_optim_test
