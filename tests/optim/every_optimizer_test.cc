// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>

#include "tests/optim/papers.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/optim/optimizer.h"

namespace every_optimizer_test {

using namespace trireme;
using namespace trireme::testing;

namespace {}  // namespace

TEST(optim_every_optimizer, state_is_named_and_restoring_it_continues_with_the_same_bits) {
  for (const auto& [name, make] : every()) {
    NamedTensors one = start(torch::kFloat), two = start(torch::kFloat);
    auto first = make(one), second = make(two);
    for (int t = 0; t < 3; ++t) draw_gradients(one), first->step(kLr);
    Collect seen;
    first->state(seen);
    EXPECT_EQ(seen.values.at("optim.step"), 3) << name;
    EXPECT_GE(seen.tensors.size(), one.size()) << name;
    for (size_t i = 0; i < one.size(); ++i) two[i].second.data().copy_(one[i].second);
    Restore restore(seen);
    second->state(restore);
    EXPECT_EQ(second->steps(), 3);
    draw_gradients(one);
    for (size_t i = 0; i < one.size(); ++i)
      two[i].second.mutable_grad() = one[i].second.grad().clone();
    first->step(kLr);
    second->step(kLr);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(one[i].second.equal(two[i].second)) << name << ' ' << one[i].first;
  }
}

TEST(optim_every_optimizer, a_parameter_without_a_gradient_stays_and_does_not_age) {
  for (const auto& [name, make] : every()) {
    NamedTensors both = start(torch::kFloat), alone = start(torch::kFloat);
    alone.erase(alone.begin() + 1, alone.end());
    auto of_both = make(both), of_one = make(alone);
    for (int t = 0; t < 6; ++t) {
      draw_gradients(both);
      // In odd steps the first parameter has none; its twin does not step.
      if (t % 2) {
        both[0].second.mutable_grad() = at::Tensor();
      } else {
        alone[0].second.mutable_grad() = both[0].second.grad().clone();
        of_one->step(kLr);
      }
      of_both->step(kLr);
    }
    EXPECT_TRUE(both[0].second.equal(alone[0].second)) << name;
  }
}

TEST(optim_every_optimizer, threads_change_no_bit) {
  const int before = at::get_num_threads();
  for (const auto& [name, make] : every()) {
    std::vector<at::Tensor> results;
    for (int threads : {1, 3}) {
      at::set_num_threads(threads);
      torch::manual_seed(5);
      auto w = torch::randn({401, 500}).requires_grad_();
      auto optimizer = make({{"w", w}});
      for (int t = 0; t < 3; ++t) {
        w.mutable_grad() = torch::randn({401, 500});
        optimizer->step(kLr, 0.5);
      }
      results.push_back(w.detach());
    }
    EXPECT_TRUE(results[0].equal(results[1])) << name;
  }
  at::set_num_threads(before);
}

TEST(optim_every_optimizer, bad_options_get_one_sentence) {
  auto w = torch::ones({4}).requires_grad_();
  const NamedTensors p{{"w", w}};
  auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal([&] { make_adamod(p, {.beta3 = 1}); }), "AdaMod: beta3 is 1"));
  EXPECT_TRUE(says(refusal([&] { make_adamod(p, {.eps = -1}); }), "AdaMod: eps is -1"));
  EXPECT_TRUE(says(refusal([&] { make_lion(p, {.beta1 = 1}); }), "Lion: beta1 is 1"));
  EXPECT_TRUE(says(refusal([&] { make_lion(p, {.weight_decay = NAN}); }), "weight_decay is nan"));
  EXPECT_TRUE(says(refusal([&] { make_rmsprop(p, {.alpha = -1}); }), "alpha is -1"));
  EXPECT_TRUE(says(refusal([&] { make_rmsprop(p, {.momentum = -1}); }), "momentum is -1"));
  EXPECT_TRUE(says(refusal([&] { make_adagrad(p, {.lr_decay = -1}); }), "lr_decay is -1"));
  EXPECT_TRUE(says(refusal([&] { make_adagrad(p, {.eps = -1}); }), "eps is -1"));
  EXPECT_TRUE(says(refusal([&] { make_lars(p, {.trust_coefficient = 0}); }), "above 0"));
  EXPECT_TRUE(says(refusal([&] { make_lamb(p, {.min_coeff = 2, .max_coeff = 1}); }), "min_coeff"));
  EXPECT_TRUE(says(refusal([&] { make_lamb(p, {.beta2 = 1}); }), "beta2 is 1"));
  EXPECT_TRUE(says(refusal([&] { make_adafactor(p, {.beta2_decay = 0.5}); }), "beta2_decay"));
  EXPECT_TRUE(says(refusal([&] { make_adafactor(p, {.eps1 = 0}); }), "eps1 is 0"));
}

}  // namespace every_optimizer_test
