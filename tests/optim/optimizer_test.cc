// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tests/optim/state_visitors.h"
#include "tests/optim/twins.h"
#include "trireme/base/error.h"

namespace optimizer_test {

using namespace trireme;

TEST(optim_optimizer, sgd_equals_torch) {
  for (double momentum : {0.0, 0.9})
    for (double decay : {0.0, 0.05})
      for (bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        Twins twins;
        auto ours = make_sgd(twins.ours, {momentum, decay, nesterov});
        torch::optim::SGD theirs(
            twins.theirs,
            torch::optim::SGDOptions(0.03).momentum(momentum).weight_decay(decay).nesterov(
                nesterov));
        EXPECT_LT(difference_after(twins, *ours, theirs, 0.03), 1e-6)
            << momentum << ' ' << decay << ' ' << nesterov;
      }
}

TEST(optim_optimizer, sgd_with_dampening_equals_torch) {
  for (double dampening : {0.5, 1.0, -0.25})
    for (double decay : {0.0, 0.05}) {
      Twins twins;
      auto ours = make_sgd(twins.ours, {0.9, decay, false, dampening});
      torch::optim::SGD theirs(
          twins.theirs,
          torch::optim::SGDOptions(0.03).momentum(0.9).weight_decay(decay).dampening(dampening));
      EXPECT_LT(difference_after(twins, *ours, theirs, 0.03), 1e-6) << dampening << ' ' << decay;
    }
  // A parameter's first gradient is not dampened, whenever it comes: torch's rule, and the state's.
  Twins twins;
  auto ours = make_sgd(twins.ours, {.momentum = 0.9, .dampening = 0.5});
  torch::optim::SGD theirs(twins.theirs,
                           torch::optim::SGDOptions(0.03).momentum(0.9).dampening(0.5));
  for (int t = 0; t < 6; ++t) {
    twins.draw_gradients();
    if (t < 3) {
      twins.theirs[1].mutable_grad() = at::Tensor();
      twins.ours[1].second.mutable_grad() = at::Tensor();
    }
    if (t == 2) {
      Collect seen;
      ours->state(seen);
      EXPECT_EQ(seen.values.at("optim.steps.a.bias"), 0);
      ours = make_sgd(twins.ours, {.momentum = 0.9, .dampening = 0.5});
      Restore restore(seen);
      ours->state(restore);
    }
    ours->step(0.03);
    theirs.step();
  }
  EXPECT_LT(twins.largest_difference(), 1e-6);
}

TEST(optim_optimizer, amsgrad_equals_torch) {
  for (double decay : {0.0, 0.1}) {
    Twins one, two;
    auto adamw = make_adamw(one.ours, {.beta2 = 0.95, .weight_decay = decay, .amsgrad = true});
    torch::optim::AdamW theirs(
        one.theirs,
        torch::optim::AdamWOptions(3e-3).betas({0.9, 0.95}).weight_decay(decay).amsgrad(true));
    auto adam = make_adamw(two.ours, {.weight_decay = decay, .decoupled = false, .amsgrad = true});
    torch::optim::Adam adam_theirs(
        two.theirs, torch::optim::AdamOptions(3e-3).weight_decay(decay).amsgrad(true));
    // Gradients that shrink, or the largest v would be the last and amsgrad nothing.
    for (double scale : {4.0, 0.25}) {
      EXPECT_LT(difference_after(one, *adamw, theirs, 3e-3, 12, scale), 1e-6) << decay;
      EXPECT_LT(difference_after(two, *adam, adam_theirs, 3e-3, 12, scale), 1e-6) << decay;
    }
    Twins plain;
    auto without = make_adamw(plain.ours, {.beta2 = 0.95, .weight_decay = decay});
    torch::optim::AdamW amsgrad(
        plain.theirs,
        torch::optim::AdamWOptions(3e-3).betas({0.9, 0.95}).weight_decay(decay).amsgrad(true));
    double apart = 0;
    for (double scale : {4.0, 0.25})
      apart = difference_after(plain, *without, amsgrad, 3e-3, 12, scale);
    EXPECT_GT(apart, 1e-4) << "these gradients cannot tell amsgrad from Adam";
  }
}

TEST(optim_optimizer, amsgrads_state_has_torchs_name_and_goes_on_with_the_same_bits) {
  Twins twins;
  auto first = make_adamw(twins.ours, {.beta2 = 0.9, .amsgrad = true});
  for (double scale : {4.0, 0.1}) twins.draw_gradients(scale), first->step(1e-2);
  Collect seen;
  first->state(seen);
  ASSERT_TRUE(seen.tensors.count("optim.max_exp_avg_sq.a.weight"));
  EXPECT_GT((seen.tensors.at("optim.max_exp_avg_sq.a.weight") -
             seen.tensors.at("optim.exp_avg_sq.a.weight"))
                .max()
                .item<double>(),
            0);
  Twins again;
  for (size_t i = 0; i < again.ours.size(); ++i)
    again.ours[i].second.data().copy_(twins.ours[i].second);
  auto second = make_adamw(again.ours, {.beta2 = 0.9, .amsgrad = true});
  Restore restore(seen);
  second->state(restore);
  twins.draw_gradients(0.1);
  for (size_t i = 0; i < again.ours.size(); ++i)
    again.ours[i].second.mutable_grad() = twins.ours[i].second.grad().clone();
  first->step(1e-2);
  second->step(1e-2);
  for (size_t i = 0; i < again.ours.size(); ++i)
    EXPECT_TRUE(again.ours[i].second.equal(twins.ours[i].second));
}

// DeepSpeed's bias_correction: false; torch has no such option, so the rule is written out.
TEST(optim_optimizer, adam_without_bias_correction_is_the_plain_rule) {
  Twins twins(at::kDouble);
  auto ours = make_adamw(twins.ours, {.weight_decay = 0.1, .bias_correction = false});
  std::vector<at::Tensor> m, v;
  for (const auto& p : twins.theirs) {
    m.push_back(at::zeros_like(p.detach()));
    v.push_back(at::zeros_like(p.detach()));
  }
  at::NoGradGuard no_grad;
  for (int t = 0; t < 10; ++t) {
    twins.draw_gradients();
    ours->step(1e-2);
    for (size_t i = 0; i < m.size(); ++i) {
      auto& p = twins.theirs[i];
      m[i] = 0.9 * m[i] + 0.1 * p.grad();
      v[i] = 0.999 * v[i] + 0.001 * p.grad() * p.grad();
      p.copy_(p * (1 - 1e-2 * 0.1) - 1e-2 * m[i] / (v[i].sqrt() + 1e-8));
    }
  }
  EXPECT_LT(twins.largest_difference(), 1e-12);
}

TEST(optim_optimizer, adamw_equals_torch) {
  for (double decay : {0.0, 0.1}) {
    Twins twins;
    auto ours = make_adamw(twins.ours, {.beta2 = 0.95, .weight_decay = decay});
    torch::optim::AdamW theirs(
        twins.theirs, torch::optim::AdamWOptions(3e-3).betas({0.9, 0.95}).weight_decay(decay));
    EXPECT_LT(difference_after(twins, *ours, theirs, 3e-3), 1e-6) << decay;
  }
}

TEST(optim_optimizer, adam_equals_torch) {
  for (double decay : {0.0, 0.1}) {
    Twins twins;
    auto ours = make_adamw(twins.ours, {.weight_decay = decay, .decoupled = false});
    torch::optim::Adam theirs(twins.theirs, torch::optim::AdamOptions(3e-3).weight_decay(decay));
    EXPECT_LT(difference_after(twins, *ours, theirs, 3e-3), 1e-6) << decay;
  }
}

// Two gradients at once, or one after the other: with v frozen, weights move as far in the long
// run.
TEST(optim_optimizer, a_frozen_second_moment_makes_late_gradients_count_in_full) {
  const auto way = [](int64_t freeze_step, bool late) {
    at::Tensor w = at::zeros({1}, at::kDouble).requires_grad_();
    auto adam = make_adamw({{"w", w}}, {.weight_decay = 0, .freeze_step = freeze_step});
    const auto step = [&](double g) {
      w.mutable_grad() = at::full({1}, g, at::kDouble);
      adam->step(1e-3, 1);
    };
    for (int i = 0; i < 50; ++i) step(i % 2 ? 1.0 : 0.9);
    const double before = w.item<double>();
    for (int i = 0; i < 400; ++i) step(!late ? 1 : i % 40 == 39 ? 40 : 0);
    for (int i = 0; i < 200; ++i) step(0);
    return before - w.item<double>();
  };
  EXPECT_NEAR(way(50, true) / way(50, false), 1, 1e-3);
  EXPECT_LT(way(0, true) / way(0, false), 0.6) << "v that moves on takes bursts for noise";
  // Up to that step nothing is different, and 0 is never.
  EXPECT_EQ(way(1'000'000, true), way(0, true));
}

TEST(optim_optimizer, float64_equals_torch_to_1e_13) {
  Twins adam(at::kDouble), sgd(at::kDouble);
  auto ours_adam = make_adamw(adam.ours, {});
  torch::optim::AdamW theirs_adam(adam.theirs, torch::optim::AdamWOptions(1e-2));
  EXPECT_LT(difference_after(adam, *ours_adam, theirs_adam, 1e-2), 1e-13);
  auto ours_sgd = make_sgd(sgd.ours, {0.9, 0.01, true});
  torch::optim::SGD theirs_sgd(
      sgd.theirs, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true));
  EXPECT_LT(difference_after(sgd, *ours_sgd, theirs_sgd, 0.1), 1e-13);
}

TEST(optim_optimizer, grad_scale_is_multiplied_into_the_gradient) {
  Twins twins;
  auto ours = make_sgd(twins.ours, {0.9, 0.05, false});
  torch::optim::SGD theirs(twins.theirs,
                           torch::optim::SGDOptions(0.03).momentum(0.9).weight_decay(0.05));
  EXPECT_LT(difference_after(twins, *ours, theirs, 0.03, 20, 0.25), 1e-6);
}

TEST(optim_optimizer, option_groups_decide_decay_and_rate_by_name) {
  Twins twins;
  auto ours = make_adamw(twins.ours, {.weight_decay = 0.1},
                         {{"*.bias", 0.0}, {"norm.*", 0.0}, {"b.*", std::nullopt, 0.5}});
  auto group = [&](std::vector<torch::Tensor> p, double lr, double decay) {
    return torch::optim::OptimizerParamGroup(
        std::move(p), std::make_unique<torch::optim::AdamWOptions>(
                          torch::optim::AdamWOptions(lr).weight_decay(decay)));
  };
  const auto& t = twins.theirs;
  torch::optim::AdamW theirs(
      {group({t[0]}, 1e-2, 0.1), group({t[1], t[2]}, 1e-2, 0), group({t[3]}, 5e-3, 0.1)});
  EXPECT_LT(difference_after(twins, *ours, theirs, 1e-2), 1e-6);
}

TEST(optim_optimizer, a_parameter_without_a_gradient_is_left_alone_and_does_not_age) {
  Twins twins;
  auto ours = make_adamw(twins.ours, {});
  torch::optim::AdamW theirs(twins.theirs, torch::optim::AdamWOptions(1e-2));
  for (int i = 0; i < 21; ++i) {
    twins.draw_gradients();
    if (i % 3 == 0)
      twins.ours[1].second.mutable_grad() = at::Tensor(),
      twins.theirs[1].mutable_grad() = at::Tensor();
    auto before = twins.ours[1].second.detach().clone();
    ours->step(1e-2);
    theirs.step();
    if (i % 3 == 0) {
      EXPECT_TRUE(before.equal(twins.ours[1].second));
    }
  }
  EXPECT_LT(twins.largest_difference(), 1e-6);
}

TEST(optim_optimizer, state_is_named_and_restoring_it_continues_with_the_same_bits) {
  for (bool adam : {true, false}) {
    Twins one, two;
    auto make = [&](const NamedTensors& p) {
      return adam ? make_adamw(p, {}) : make_sgd(p, {0.9, 0.01, true});
    };
    auto first = make(one.ours);
    for (int i = 0; i < 3; ++i) one.draw_gradients(), first->step(1e-2);
    Collect seen;
    first->state(seen);
    EXPECT_EQ(seen.values.at("optim.step"), 3);
    EXPECT_EQ(seen.tensors.size(), adam ? 8u : 4u);
    EXPECT_EQ(
        seen.tensors.at(adam ? "optim.exp_avg_sq.b.weight" : "optim.momentum.b.weight").sizes(),
        (at::IntArrayRef{3, 1, 9}));

    auto second = make(two.ours);
    for (size_t i = 0; i < one.ours.size(); ++i)
      two.ours[i].second.data().copy_(one.ours[i].second);
    Restore restore(seen);
    second->state(restore);
    EXPECT_EQ(second->steps(), 3);
    one.draw_gradients();
    for (size_t i = 0; i < one.ours.size(); ++i)
      two.ours[i].second.mutable_grad() = one.ours[i].second.grad();
    first->step(1e-2);
    second->step(1e-2);
    for (size_t i = 0; i < one.ours.size(); ++i)
      EXPECT_TRUE(one.ours[i].second.equal(two.ours[i].second)) << i;
  }
}

TEST(optim_optimizer, a_step_bumps_the_version_so_that_backward_notices) {
  auto w = torch::ones({4}).requires_grad_();
  auto optimizer = make_sgd({{"w", w}});
  auto loss = (w * w).sum();  // saves w
  w.mutable_grad() = torch::ones({4});
  const auto version = w._version();
  optimizer->step(0.1);
  EXPECT_GT(w._version(), version);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(optim_optimizer, zero_grad_keeps_the_memory_unless_asked_to_drop_it) {
  auto w = torch::ones({4}).requires_grad_();
  auto optimizer = make_sgd({{"w", w}});
  w.mutable_grad() = torch::ones({4});
  void* memory = w.grad().data_ptr();
  optimizer->zero_grad();
  EXPECT_EQ(w.grad().data_ptr(), memory);
  EXPECT_EQ(w.grad().abs().sum().item<float>(), 0);
  optimizer->zero_grad(/*set_to_none=*/true);
  EXPECT_FALSE(w.grad().defined());
}

TEST(optim_optimizer, a_gradient_that_is_not_contiguous_is_read_in_the_right_order) {
  auto w = torch::zeros({2, 3}).requires_grad_();
  auto optimizer = make_sgd({{"w", w}});
  w.mutable_grad() = torch::arange(6, torch::kFloat).view({3, 2}).t();
  optimizer->step(1);
  EXPECT_TRUE(w.detach().equal(-torch::arange(6, torch::kFloat).view({3, 2}).t()));
}

TEST(optim_optimizer, what_it_cannot_do_is_refused_by_name) {
  auto text = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  auto w = torch::ones({4}).requires_grad_();
  EXPECT_NE(text([&] {
              make_sgd({{"w", w}}, {.momentum = 0.9, .nesterov = true, .dampening = 0.1});
            }).find("no dampening"),
            std::string::npos);
  EXPECT_NE(text([&] {
              make_sgd({{"w", w}}, {.nesterov = true});
            }).find("nesterov"),
            std::string::npos);
  EXPECT_NE(text([&] { make_sgd({}); }).find("no parameters"), std::string::npos);
  auto other = torch::ones({4}).requires_grad_();
  EXPECT_NE(text([&] { make_sgd({{"w", w}, {"w", other}}); }).find("twice"), std::string::npos);
  EXPECT_NE(text([&] {
              make_sgd({{"h", torch::ones({4}, torch::kHalf)}});
            }).find("'h'"),
            std::string::npos);
  EXPECT_NE(text([&] {
              make_sgd({{"w", w}, {"d", torch::ones({4}, torch::kDouble)}});
            }).find("'d'"),
            std::string::npos);
  EXPECT_NE(text([&] {
              make_sgd({{"t", torch::ones({4, 3}).t()}});
            }).find("contiguous"),
            std::string::npos);

  auto ok = torch::ones({4}).requires_grad_();
  auto optimizer = make_sgd({{"ok", ok}, {"w", w}});
  ok.mutable_grad() = torch::ones({4});
  w.mutable_grad() =
      torch::sparse_coo_tensor(torch::zeros({1, 1}, torch::kLong), torch::ones({1}), {4});
  EXPECT_NE(text([&] { optimizer->step(1); }).find("'w' is sparse"), std::string::npos);
  EXPECT_TRUE(ok.detach().equal(torch::ones({4}))) << "nothing has changed";
}

}  // namespace optimizer_test
