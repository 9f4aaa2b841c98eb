// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/master_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/optim/clip.h"

namespace master_weights_test {

using namespace trireme;

namespace {

const std::vector<std::vector<int64_t>> kShapes = {{33, 17}, {5}, {1}, {2, 3, 4}};

NamedTensors parameters(at::ScalarType type) {
  NamedTensors all;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    at::Tensor t = at::empty(kShapes[i], at::kFloat);
    for (int64_t k = 0; k < t.numel(); ++k)
      t.data_ptr<float>()[k] = std::sin(0.37f * static_cast<float>(k + 11 * int64_t(i)));
    all.emplace_back("p" + std::to_string(i), t.to(type).requires_grad_());
  }
  return all;
}

void give_gradients(const NamedTensors& to, int step) {
  for (size_t i = 0; i < to.size(); ++i) {
    at::Tensor g = at::empty(to[i].second.sizes(), at::kFloat);
    for (int64_t k = 0; k < g.numel(); ++k)
      g.data_ptr<float>()[k] =
          std::cos(0.9f * static_cast<float>(k + step) + static_cast<float>(i));
    // Every dtype sees the half-precision value.
    at::Tensor p = to[i].second;
    p.mutable_grad() = g.to(at::kBFloat16).to(p.scalar_type());
  }
}

struct Choice {
  const char* name;
  MakeOptimizer make;
};

std::vector<Choice> choices() {
  return {
      {"SGD",
       [](NamedTensors p) {
         return make_sgd(std::move(p), {0.9, 0.01, false});
       }},
      {"AdamW", [](NamedTensors p) { return make_adamw(std::move(p)); }},
      {"AdaMod", [](NamedTensors p) { return make_adamod(std::move(p)); }},
      {"Lion", [](NamedTensors p) { return make_lion(std::move(p)); }},
      {"RMSprop", [](NamedTensors p) { return make_rmsprop(std::move(p)); }},
      {"Adagrad", [](NamedTensors p) { return make_adagrad(std::move(p)); }},
      {"Lars", [](NamedTensors p) { return make_lars(std::move(p)); }},
      {"Lamb", [](NamedTensors p) { return make_lamb(std::move(p)); }},
      {"Adafactor", [](NamedTensors p) { return make_adafactor(std::move(p)); }},
  };
}

/// Everything that a walk shows; a loading one writes what another saved.
struct Tray : StateVisitor {
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    if (loading)
      local.copy_(tensors.at(slice.name));
    else
      tensors[slice.name] = local.clone();
  }
  void value(const std::string& name, int64_t& v) override {
    loading ? void(v = integers.at(name)) : void(integers[name] = v);
  }
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  bool loading = false;
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> integers;
};

Tray state_of(Optimizer& optimizer) {
  Tray tray;
  optimizer.state(tray);
  return tray;
}

}  // namespace

TEST(optim_master_weights, every_optimizer_steps_as_on_float32_and_rounds_once) {
  for (at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const auto& choice : choices()) {
      NamedTensors half = parameters(type), wide = parameters(type);
      for (auto& [name, p] : wide) p = p.detach().to(at::kFloat).requires_grad_();
      auto ours = with_master_weights(half, choice.make);
      auto plain = choice.make(wide);
      for (int step = 0; step < 5; ++step) {
        give_gradients(half, step);
        give_gradients(wide, step);
        ours->step(0.01, 0.5);
        plain->step(0.01, 0.5);
      }
      EXPECT_EQ(ours->steps(), 5);
      const Tray tray = state_of(*ours);
      for (size_t i = 0; i < half.size(); ++i) {
        EXPECT_TRUE(tray.tensors.at("optim.master." + half[i].first).equal(wide[i].second))
            << choice.name << " " << i;
        EXPECT_TRUE(half[i].second.equal(wide[i].second.to(type))) << choice.name << " " << i;
      }
    }
}

TEST(optim_master_weights, steps_too_small_for_bfloat16_add_up) {
  at::Tensor kept = at::ones({4}, at::kBFloat16).requires_grad_(),
             lost = at::ones({4}, at::kBFloat16).requires_grad_();
  const MakeOptimizer sgd = [](NamedTensors p) { return make_sgd(std::move(p)); };
  auto with = with_master_weights({{"w", kept}}, sgd),
       without = without_master_weights({{"w", lost}}, sgd);
  for (int i = 0; i < 100; ++i) {
    kept.mutable_grad() = at::ones({4}, at::kBFloat16);
    lost.mutable_grad() = at::ones({4}, at::kBFloat16);
    with->step(1e-3);
    without->step(1e-3);
  }
  EXPECT_NEAR(kept[0].to(at::kFloat).item<float>(), 0.9, 0.004);
  EXPECT_EQ(lost[0].to(at::kFloat).item<float>(), 1);
}

TEST(optim_master_weights, adamw_takes_16_bytes_a_parameter) {
  NamedTensors half = parameters(at::kBFloat16);
  auto optimizer =
      with_master_weights(half, [](NamedTensors p) { return make_adamw(std::move(p)); });
  give_gradients(half, 0);
  optimizer->step(1e-3);
  size_t bytes = 0, numel = 0;
  for (const auto& [name, p] : half) {
    bytes += p.nbytes() + p.grad().nbytes();
    numel += static_cast<size_t>(p.numel());
  }
  for (const auto& [name, t] : state_of(*optimizer).tensors) bytes += t.nbytes();
  EXPECT_EQ(bytes, 16 * numel);
}

TEST(optim_master_weights, a_parameter_without_a_gradient_keeps_its_bits) {
  NamedTensors half = parameters(at::kHalf);
  auto optimizer =
      with_master_weights(half, [](NamedTensors p) { return make_adamw(std::move(p)); });
  give_gradients(half, 0);
  half[1].second.mutable_grad() = at::Tensor();
  const at::Tensor before = half[1].second.detach().clone(),
                   other = half[0].second.detach().clone();
  optimizer->step(1e-2);
  EXPECT_TRUE(half[1].second.equal(before));
  EXPECT_FALSE(half[0].second.equal(other));
}

TEST(optim_master_weights, state_continues_where_another_stopped) {
  const MakeOptimizer adamw = [](NamedTensors p) { return make_adamw(std::move(p)); };
  NamedTensors a = parameters(at::kBFloat16);
  auto first = with_master_weights(a, adamw);
  for (int i = 0; i < 3; ++i) give_gradients(a, i), first->step(0.01);
  Tray saved = state_of(*first);
  NamedTensors b;
  for (const auto& [name, p] : a) b.emplace_back(name, p.detach().clone().requires_grad_());
  auto second = with_master_weights(b, adamw);
  saved.loading = true;
  second->state(saved);
  EXPECT_EQ(second->steps(), 3);
  for (int i = 3; i < 6; ++i) {
    give_gradients(a, i), first->step(0.01);
    give_gradients(b, i), second->step(0.01);
  }
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second));
  for (const auto& [name, t] : state_of(*first).tensors)
    EXPECT_TRUE(t.equal(state_of(*second).tensors.at(name))) << name;
}

TEST(optim_master_weights, refuses_what_is_not_half_precision_and_mixtures) {
  const MakeOptimizer sgd = [](NamedTensors p) { return make_sgd(std::move(p)); };
  const at::Tensor h = at::ones({2}, at::kHalf), b = at::ones({2}, at::kBFloat16),
                   f = at::ones({2});
  EXPECT_THROW(with_master_weights({}, sgd), UsageError);
  EXPECT_THROW(with_master_weights({{"f", f}}, sgd), UsageError);
  try {
    with_master_weights({{"h", h}, {"b", b}}, sgd);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("'b' is BFloat16 (the first is Half)"), std::string::npos)
        << e.what();
  }
}

TEST(optim_master_weights, zero_grad_is_about_the_half_precision_gradients) {
  NamedTensors half = parameters(at::kHalf);
  auto optimizer = with_master_weights(half, [](NamedTensors p) { return make_sgd(std::move(p)); });
  give_gradients(half, 0);
  const void* place = half[0].second.grad().data_ptr();
  optimizer->zero_grad();
  EXPECT_EQ(half[0].second.grad().data_ptr(), place);
  EXPECT_EQ(half[0].second.grad().abs().sum().item<float>(), 0);
  optimizer->zero_grad(true);
  EXPECT_FALSE(half[0].second.grad().defined());
}

TEST(optim_master_weights, the_norm_of_half_gradients_is_that_of_their_values) {
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    NamedTensors half = parameters(type), wide = parameters(at::kDouble);
    give_gradients(half, 1);
    give_gradients(wide, 1);
    if (type == at::kHalf)
      for (size_t i = 0; i < half.size(); ++i)
        wide[i].second.mutable_grad() = half[i].second.grad().to(at::kDouble);
    const GradNorm a = grad_norm(half, 0.25, 0.5), b = grad_norm(wide, 0.25, 0.5);
    EXPECT_NEAR(a.norm, b.norm, 1e-12 * b.norm);
    EXPECT_NEAR(a.coefficient, b.coefficient, 1e-12);
    half[2].second.grad().fill_(INFINITY);
    EXPECT_FALSE(grad_norm(half).finite);
    EXPECT_EQ(first_non_finite(half), "p2");
  }
}

}  // namespace master_weights_test
