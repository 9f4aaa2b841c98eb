// SPDX-License-Identifier: Apache-2.0
// RMSprop and Adagrad against torch::optim; Lion, LARS, LAMB and Adafactor against their papers'
// formulas in float64, written here with one loop per line of the formula.
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <map>

#include "trireme/base/error.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/rule_kernels.h"
#include "trireme/optim/tensor_passes.h"

using namespace trireme;

namespace {

using Make = std::function<std::unique_ptr<Optimizer>(const NamedTensors&)>;

constexpr double kLr = 0.01, kDecay = 0.1;
const std::vector<OptionGroup> kGroups = {{"*.bias", 0.0}, {"b.*", std::nullopt, 0.5}};

NamedTensors start(at::ScalarType dtype) {
  torch::manual_seed(7);
  NamedTensors all;
  for (auto [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"a.weight", {43, 57}}, {"a.bias", {13}}, {"norm.weight", {5}}, {"b.weight", {3, 1, 9}}})
    all.emplace_back(name, torch::randn(shape, torch::kDouble).to(dtype).requires_grad_());
  return all;
}

void draw_gradients(NamedTensors& parameters) {
  for (auto& [name, p] : parameters)
    p.mutable_grad() = torch::randn(p.sizes(), torch::kDouble).to(p.scalar_type());
}

std::vector<torch::Tensor> copies(const NamedTensors& parameters) {
  std::vector<torch::Tensor> all;
  for (const auto& [name, p] : parameters) all.push_back(p.detach().clone().requires_grad_());
  return all;
}

// One parameter of the paper's run, in float64.
struct Reference {
  std::vector<double> w, g;
  std::map<std::string, std::vector<double>> state;
  std::vector<double>& of(const std::string& kind) {
    return state.try_emplace(kind, w.size(), 0.0).first->second;
  }
  int64_t rows = 1, columns = 1;
  double lr = 0, decay = 0;
  std::string name;
  int t = 0;
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

using Rule = std::function<void(Reference&)>;

// Largest difference from the rule after 25 steps with groups, decay and gradients scaled by 0.25.
double distance(const Make& make, const Rule& rule, at::ScalarType dtype) {
  NamedTensors ours = start(dtype);
  auto optimizer = make(ours);
  std::vector<Reference> all(ours.size());
  auto read = [](const at::Tensor& x) {
    auto wide = x.detach().to(torch::kDouble).contiguous();
    return std::vector<double>(wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel());
  };
  for (size_t i = 0; i < ours.size(); ++i) {
    auto& r = all[i];
    r.name = ours[i].first;
    r.w = read(ours[i].second);
    if (ours[i].second.dim() > 1) r.rows = ours[i].second.size(0);
    r.columns = static_cast<int64_t>(r.w.size()) / r.rows;
    r.lr = r.name == "b.weight" ? kLr / 2 : kLr;
    r.decay = r.name == "a.bias" ? 0 : kDecay;
  }
  for (int t = 1; t <= 25; ++t) {
    draw_gradients(ours);
    for (size_t i = 0; i < ours.size(); ++i) {
      all[i].g = read(ours[i].second.grad());
      for (double& g : all[i].g) g *= 0.25;
      all[i].t = t;
      rule(all[i]);
    }
    optimizer->step(kLr, 0.25);
  }
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto w = read(ours[i].second);
    for (size_t j = 0; j < w.size(); ++j) worst = std::max(worst, std::abs(w[j] - all[i].w[j]));
  }
  return worst;
}

void expect_paper(const Make& make, const Rule& rule) {
  EXPECT_LT(distance(make, rule, torch::kFloat), 1e-5);
  EXPECT_LT(distance(make, rule, torch::kDouble), 1e-12);
}

Make lion() {
  return [](const NamedTensors& p) { return make_lion(p, {.weight_decay = kDecay}, kGroups); };
}
Make rmsprop() {
  return [](const NamedTensors& p) {
    return make_rmsprop(p, {.weight_decay = kDecay, .momentum = 0.9, .centered = true}, kGroups);
  };
}
Make adagrad() {
  return [](const NamedTensors& p) {
    return make_adagrad(p, {.lr_decay = 0.01, .weight_decay = kDecay}, kGroups);
  };
}
Make lars() {
  return [](const NamedTensors& p) { return make_lars(p, {.weight_decay = kDecay}, kGroups); };
}
Make lamb() {
  return [](const NamedTensors& p) {
    return make_lamb(p, {.weight_decay = kDecay, .no_adapt = {"*.bias"}}, kGroups);
  };
}

Make adafactor() {
  return [](const NamedTensors& p) { return make_adafactor(p, {.weight_decay = kDecay}, kGroups); };
}

std::map<std::string, Make> every() {
  return {{"Lion", lion()}, {"RMSprop", rmsprop()}, {"Adagrad", adagrad()},
          {"LARS", lars()}, {"LAMB", lamb()},       {"Adafactor", adafactor()}};
}

struct Collect : StateVisitor {
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    tensors[slice.name] = local.clone();
  }
  void value(const std::string& name, int64_t& v) override { values[name] = v; }
  void value(const std::string&, double&) override { FAIL(); }
  void value(const std::string&, std::string&) override { FAIL(); }
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> values;
};

struct Restore : StateVisitor {
  explicit Restore(const Collect& from) : from(from) {}
  void tensor(const Slice& slice, at::Tensor local) override {
    local.copy_(from.tensors.at(slice.name));
  }
  void value(const std::string& name, int64_t& v) override { v = from.values.at(name); }
  void value(const std::string&, double&) override { FAIL(); }
  void value(const std::string&, std::string&) override { FAIL(); }
  const Collect& from;
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(optim_more_optimizers, rmsprop_equals_torch) {
  for (double momentum : {0.0, 0.9})
    for (bool centered : {false, true})
      for (double decay : {0.0, 0.05}) {
        NamedTensors ours = start(torch::kFloat);
        auto theirs = copies(ours);
        auto optimizer = make_rmsprop(
            ours,
            {.alpha = 0.9, .weight_decay = decay, .momentum = momentum, .centered = centered});
        torch::optim::RMSprop torchs(theirs, torch::optim::RMSpropOptions(1e-3)
                                                 .alpha(0.9)
                                                 .weight_decay(decay)
                                                 .momentum(momentum)
                                                 .centered(centered));
        for (int t = 0; t < 25; ++t) {
          draw_gradients(ours);
          for (size_t i = 0; i < ours.size(); ++i)
            theirs[i].mutable_grad() = ours[i].second.grad().clone();
          optimizer->step(1e-3);
          torchs.step();
        }
        for (size_t i = 0; i < ours.size(); ++i)
          EXPECT_LT((ours[i].second - theirs[i]).abs().max().item<double>(), 1e-6)
              << momentum << centered << decay << ours[i].first;
      }
}

TEST(optim_more_optimizers, adagrad_equals_torch) {
  for (double lr_decay : {0.0, 0.1})
    for (double decay : {0.0, 0.05}) {
      NamedTensors ours = start(torch::kFloat);
      auto theirs = copies(ours);
      auto optimizer = make_adagrad(
          ours, {.lr_decay = lr_decay, .weight_decay = decay, .initial_accumulator_value = 0.1});
      torch::optim::Adagrad torchs(theirs, torch::optim::AdagradOptions(1e-2)
                                               .lr_decay(lr_decay)
                                               .weight_decay(decay)
                                               .initial_accumulator_value(0.1));
      for (int t = 0; t < 25; ++t) {
        draw_gradients(ours);
        for (size_t i = 0; i < ours.size(); ++i)
          theirs[i].mutable_grad() = ours[i].second.grad().clone();
        optimizer->step(1e-2);
        torchs.step();
      }
      for (size_t i = 0; i < ours.size(); ++i)
        EXPECT_LT((ours[i].second - theirs[i]).abs().max().item<double>(), 1e-6)
            << lr_decay << decay << ours[i].first;
    }
}

TEST(optim_more_optimizers, rmsprop_and_adagrad_take_groups_and_float64) {
  expect_paper(rmsprop(), [](Reference& r) {
    auto &v = r.of("v"), &mean = r.of("mean"), &b = r.of("b");
    for (size_t i = 0; i < r.w.size(); ++i) {
      const double g = r.g[i] + r.decay * r.w[i];
      v[i] = 0.99 * v[i] + 0.01 * g * g;
      mean[i] = 0.99 * mean[i] + 0.01 * g;
      b[i] = 0.9 * b[i] + g / (std::sqrt(v[i] - mean[i] * mean[i]) + 1e-8);
      r.w[i] -= r.lr * b[i];
    }
  });
  expect_paper(adagrad(), [](Reference& r) {
    auto& sum = r.of("sum");
    for (size_t i = 0; i < r.w.size(); ++i) {
      const double g = r.g[i] + r.decay * r.w[i];
      sum[i] += g * g;
      r.w[i] -= r.lr / (1 + (r.t - 1) * 0.01) * g / (std::sqrt(sum[i]) + 1e-10);
    }
  });
}

TEST(optim_more_optimizers, lion_is_the_papers) {
  expect_paper(lion(), [](Reference& r) {
    auto& m = r.of("m");
    for (size_t i = 0; i < r.w.size(); ++i) {
      const double c = 0.9 * m[i] + 0.1 * r.g[i];
      r.w[i] -= r.lr * ((c > 0) - (c < 0) + r.decay * r.w[i]);
      m[i] = 0.99 * m[i] + 0.01 * r.g[i];
    }
  });
}

TEST(optim_more_optimizers, lars_is_the_papers) {
  for (double momentum : {0.0, 0.9})
    expect_paper(
        [&](const NamedTensors& p) {
          return make_lars(p, {.momentum = momentum, .weight_decay = kDecay, .eps = 0}, kGroups);
        },
        [&](Reference& r) {
          auto& m = r.of("m");
          const bool adapts = r.name != "a.bias" && r.name != "norm.weight";
          const double local = adapts ? 0.001 * norm(r.w) / (norm(r.g) + r.decay * norm(r.w)) : 1;
          for (size_t i = 0; i < r.w.size(); ++i) {
            m[i] = momentum * m[i] + r.lr * local * (r.g[i] + r.decay * r.w[i]);
            r.w[i] -= m[i];
          }
        });
}

TEST(optim_more_optimizers, lamb_is_the_papers) {
  expect_paper(lamb(), [](Reference& r) {
    auto &m = r.of("m"), &v = r.of("v");
    std::vector<double> u(r.w.size());
    for (size_t i = 0; i < r.w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * r.g[i];
      v[i] = 0.999 * v[i] + 0.001 * r.g[i] * r.g[i];
      const double m_hat = m[i] / (1 - std::pow(0.9, r.t)),
                   v_hat = v[i] / (1 - std::pow(0.999, r.t));
      u[i] = m_hat / (std::sqrt(v_hat) + 1e-8) + r.decay * r.w[i];
    }
    const double ratio = r.name == "a.bias" ? 1 : std::clamp(norm(r.w) / norm(u), 0.01, 10.0);
    for (size_t i = 0; i < r.w.size(); ++i) r.w[i] -= r.lr * ratio * u[i];
  });
}

TEST(optim_more_optimizers, adafactor_is_the_papers) {
  for (bool scale_parameter : {true, false})
    expect_paper(
        [&](const NamedTensors& p) {
          return make_adafactor(p, {.weight_decay = kDecay, .scale_parameter = scale_parameter},
                                kGroups);
        },
        [&](Reference& r) {
          const double beta2 = 1 - std::pow(r.t, -0.8), eps1 = 1e-30;
          const auto rows = static_cast<size_t>(r.rows), columns = static_cast<size_t>(r.columns);
          std::vector<double> v(r.w.size());
          if (rows > 1) {
            auto &row = r.of("row"), &column = r.of("column");
            double total = 0;
            for (size_t i = 0; i < rows; ++i) {
              double sum = 0;
              for (size_t j = 0; j < columns; ++j)
                sum += r.g[i * columns + j] * r.g[i * columns + j] + eps1;
              row[i] = beta2 * row[i] + (1 - beta2) * sum;
              total += row[i];
            }
            for (size_t j = 0; j < columns; ++j) {
              double sum = 0;
              for (size_t i = 0; i < rows; ++i)
                sum += r.g[i * columns + j] * r.g[i * columns + j] + eps1;
              column[j] = beta2 * column[j] + (1 - beta2) * sum;
            }
            for (size_t i = 0; i < rows; ++i)
              for (size_t j = 0; j < columns; ++j) v[i * columns + j] = row[i] * column[j] / total;
          } else {
            auto& full = r.of("v");
            for (size_t j = 0; j < columns; ++j)
              v[j] = full[j] = beta2 * full[j] + (1 - beta2) * (r.g[j] * r.g[j] + eps1);
          }
          const double root_n = std::sqrt(static_cast<double>(r.w.size()));
          std::vector<double> u(r.w.size());
          for (size_t j = 0; j < u.size(); ++j) u[j] = r.g[j] / std::sqrt(v[j]);
          const double rms_u = norm(u) / root_n, rms_w = norm(r.w) / root_n;
          const double rate = r.lr * (scale_parameter ? std::max(1e-3, rms_w) : 1);
          for (size_t j = 0; j < u.size(); ++j)
            r.w[j] = r.w[j] * (1 - r.lr * r.decay) - rate * u[j] / std::max(1.0, rms_u);
        });
}

TEST(optim_more_optimizers, adafactor_keeps_rows_and_columns_only) {
  NamedTensors parameters = start(torch::kFloat);
  auto optimizer = make_adafactor(parameters);
  Collect seen;
  optimizer->state(seen);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_row.a.weight").numel(), 43);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_col.a.weight").numel(), 57);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_row.b.weight").numel(), 3);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_col.b.weight").numel(), 9);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq.a.bias").numel(), 13);
  EXPECT_EQ(seen.tensors.size(), 6u);
}

TEST(optim_more_optimizers, adafactors_tensor_pass_computes_what_the_fused_one_does) {
  torch::manual_seed(4);
  for (int64_t rows : {1, 7}) {
    auto w = torch::randn({rows, 33}).requires_grad_(), twin = w.detach().clone();
    auto row = rows > 1 ? torch::zeros({rows}) : at::Tensor(), column = torch::zeros({33});
    auto optimizer = make_adafactor({{"w", w}}, {.weight_decay = 0.1});
    for (int t = 1; t <= 5; ++t) {
      w.mutable_grad() = torch::randn({rows, 33});
      AdafactorScalars s;
      s.grad_scale = 0.5;
      s.keep = 1 - s.lr * 0.1;
      s.beta2 = 1 - std::pow(t, -0.8);
      adafactor_pass(twin, w.grad(), row, column, s);
      optimizer->step(s.lr, 0.5);
    }
    EXPECT_LT((w - twin).abs().max().item<double>(), 1e-6) << rows;
  }
}

TEST(optim_more_optimizers, a_layer_of_zeros_and_one_without_gradients_can_still_move) {
  for (const auto& make : {Make([](const NamedTensors& p) { return make_lars(p); }),
                           Make([](const NamedTensors& p) { return make_lamb(p); })}) {
    auto w = torch::zeros({4}).requires_grad_(), still = torch::ones({4}).requires_grad_();
    auto optimizer = make({{"w", w}, {"still", still}});
    w.mutable_grad() = torch::ones({4});
    still.mutable_grad() = torch::zeros({4});
    optimizer->step(0.1);
    EXPECT_LT(w.max().item<float>(), -0.05);
    EXPECT_TRUE(still.equal(torch::ones({4})));
  }
}

TEST(optim_more_optimizers, lambs_ratio_stays_between_its_coefficients) {
  for (auto [weight, ratio] : {std::pair(1e-6, 0.01), std::pair(1e3, 10.0)}) {
    auto w = torch::full({4}, weight, torch::kDouble).requires_grad_();
    auto optimizer = make_lamb({{"w", w}});
    w.mutable_grad() = torch::ones({4}, torch::kDouble);
    optimizer->step(0.1);  // the first step's u is 1
    EXPECT_NEAR(w[0].item<double>(), weight - 0.1 * ratio, 1e-6);
  }
}

TEST(optim_more_optimizers, state_is_named_and_restoring_it_continues_with_the_same_bits) {
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

TEST(optim_more_optimizers, a_parameter_without_a_gradient_stays_and_does_not_age) {
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

TEST(optim_more_optimizers, threads_change_no_bit) {
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

// Every cut of the range, and so every alignment and tail.
TEST(optim_more_optimizers, neither_cuts_nor_simd_targets_change_a_bit) {
  constexpr int64_t n = 67;
  torch::manual_seed(3);
  auto p = torch::randn({n}), g = torch::randn({n}), v = torch::rand({n}) + 1,
       m = torch::randn({n});
  auto b = torch::randn({n});
  using Pass = std::function<void(float*, const float*, float*, float*, float*, int64_t)>;
  const LambScalars lamb{0.5, 0.9, 0.99, 1e-8, 0.1, 1.5, 1.25};
  const std::map<std::string, Pass> passes = {
      {"lion",
       [](auto* p, auto* g, auto*, auto* m, auto*, int64_t n) {
         lion_pass<float>(p, g, m, n, {0.5, 0.99, 0.9, 0.99, 0.01});
       }},
      {"rmsprop",
       [](auto* p, auto* g, auto* v, auto* m, auto* b, int64_t n) {
         rmsprop_pass<float>(p, g, v, m, b, n, {0.5, 0.1, 0.9, 1e-8, 0.9, true, 0.01});
       }},
      {"adagrad",
       [](auto* p, auto* g, auto* v, auto*, auto*, int64_t n) {
         adagrad_pass<float>(p, g, v, n, {0.5, 0.1, 1e-10, 0.01});
       }},
      {"lars",
       [](auto* p, auto* g, auto*, auto*, auto* b, int64_t n) {
         lars_pass<float>(p, g, b, n, {0.5, 0.1, 0.9, 0.01});
       }},
      {"lamb", [&](auto* p, auto* g, auto* v, auto* m, auto*, int64_t n) {
         lamb_moments<float>(g, m, v, n, lamb);
         lamb_update<float>(p, m, v, n, lamb, 0.01);
       }}};
  for (const auto& [name, pass] : passes) {
    at::Tensor first;
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      auto whole = torch::stack({p, g, v, m, b});
      float* w = whole.data_ptr<float>();
      pass(w, w + n, w + 2 * n, w + 3 * n, w + 4 * n, n);
      EXPECT_TRUE(whole[1].equal(g)) << "gradients are read only";
      EXPECT_FALSE(whole[0].equal(p));
      if (!first.defined()) first = whole;
      EXPECT_TRUE(whole.equal(first)) << name << ' ' << hwy::TargetName(target);
      for (int64_t cut = 0; cut <= n; ++cut) {
        auto parts = torch::stack({p, g, v, m, b});
        float* q = parts.data_ptr<float>();
        pass(q, q + n, q + 2 * n, q + 3 * n, q + 4 * n, cut);
        pass(q + cut, q + n + cut, q + 2 * n + cut, q + 3 * n + cut, q + 4 * n + cut, n - cut);
        ASSERT_TRUE(whole.equal(parts)) << name << ' ' << cut << ' ' << hwy::TargetName(target);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// What CUDA parameters use; here on CPU memory against the fused pass.
TEST(optim_more_optimizers, the_tensor_passes_compute_what_the_fused_ones_do) {
  constexpr int64_t n = 50;
  torch::manual_seed(3);
  const auto p = torch::randn({n}), g = torch::randn({n}), m = torch::randn({n}) * 0.1,
             v = torch::rand({n}) + 1, b = torch::randn({n});
  struct Set {
    at::Tensor p, m, v, b;
  };
  auto fresh = [&] { return Set{p.clone(), m.clone(), v.clone(), b.clone()}; };
  auto at = [](const at::Tensor& t) { return t.data_ptr<float>(); };
  auto same = [](const Set& x, const Set& y) {
    return x.p.allclose(y.p, 1e-6, 1e-6) && x.m.allclose(y.m, 1e-6, 1e-6) &&
           x.v.allclose(y.v, 1e-6, 1e-6) && x.b.allclose(y.b, 1e-6, 1e-6);
  };
  {
    Set x = fresh(), y = fresh();
    LionScalars s{0.5, 0.99, 0.9, 0.99, 0.01};
    lion_pass(x.p, g, x.m, s);
    lion_pass(at(y.p), g.data_ptr<float>(), at(y.m), n, s);
    EXPECT_TRUE(same(x, y));
  }
  for (bool centered : {false, true})
    for (double momentum : {0.0, 0.9}) {
      Set x = fresh(), y = fresh();
      RmspropScalars s{0.5, 0.1, 0.9, 1e-8, momentum, centered, 0.01};
      rmsprop_pass(x.p, g, x.v, x.m, x.b, s);
      rmsprop_pass(at(y.p), g.data_ptr<float>(), at(y.v), at(y.m), at(y.b), n, s);
      EXPECT_TRUE(same(x, y)) << centered << momentum;
    }
  {
    Set x = fresh(), y = fresh();
    AdagradScalars s{0.5, 0.1, 1e-10, 0.01};
    adagrad_pass(x.p, g, x.v, s);
    adagrad_pass(at(y.p), g.data_ptr<float>(), at(y.v), n, s);
    EXPECT_TRUE(same(x, y));
  }
  for (double momentum : {0.0, 0.9}) {
    Set x = fresh(), y = fresh();
    LarsScalars s{0.5, 0.1, momentum, 0.01};
    lars_pass(x.p, g, x.b, s);
    lars_pass(at(y.p), g.data_ptr<float>(), at(y.b), n, s);
    EXPECT_TRUE(same(x, y)) << momentum;
  }
  {
    Set x = fresh(), y = fresh();
    LambScalars s{0.5, 0.9, 0.99, 1e-8, 0.1, 1.5, 1.25};
    lamb_moments(g, x.m, x.v, s);
    const double u = square_sum(lamb_direction(x.p, x.m, x.v, s));
    lamb_update(x.p, x.m, x.v, s, 0.01);
    lamb_moments(g.data_ptr<float>(), at(y.m), at(y.v), n, s);
    double w_sum = 0, u_sum = 0;
    lamb_square_sums(at(y.p), at(y.m), at(y.v), n, s, &w_sum, &u_sum);
    EXPECT_NEAR(w_sum, square_sum(p), 1e-9);
    EXPECT_NEAR(u_sum / u, 1, 1e-6);
    lamb_update(at(y.p), at(y.m), at(y.v), n, s, 0.01);
    EXPECT_TRUE(same(x, y));
  }
}

TEST(optim_more_optimizers, bad_options_get_one_sentence) {
  auto w = torch::ones({4}).requires_grad_();
  const NamedTensors p{{"w", w}};
  auto says = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
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
