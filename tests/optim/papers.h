// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/optim/optimizer.h"

// Optimizers against their papers' formulas in float64, written with one loop per line of the
// formula.
namespace trireme {

using Make = std::function<std::unique_ptr<Optimizer>(const NamedTensors&)>;

inline constexpr double kLr = 0.01, kDecay = 0.1;
inline const std::vector<OptionGroup> kGroups = {{"*.bias", 0.0}, {"b.*", std::nullopt, 0.5}};

inline NamedTensors start(at::ScalarType dtype) {
  torch::manual_seed(7);
  NamedTensors all;
  for (auto [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"a.weight", {43, 57}}, {"a.bias", {13}}, {"norm.weight", {5}}, {"b.weight", {3, 1, 9}}})
    all.emplace_back(name, torch::randn(shape, torch::kDouble).to(dtype).requires_grad_());
  return all;
}

inline void draw_gradients(NamedTensors& parameters) {
  for (auto& [name, p] : parameters)
    p.mutable_grad() = torch::randn(p.sizes(), torch::kDouble).to(p.scalar_type());
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

inline double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

using Rule = std::function<void(Reference&)>;

// Largest difference from the rule after 25 steps with groups, decay and gradients scaled by 0.25.
inline double distance(const Make& make, const Rule& rule, at::ScalarType dtype) {
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

inline void expect_paper(const Make& make, const Rule& rule) {
  EXPECT_LT(distance(make, rule, torch::kFloat), 1e-5);
  EXPECT_LT(distance(make, rule, torch::kDouble), 1e-12);
}

inline Make lion() {
  return [](const NamedTensors& p) { return make_lion(p, {.weight_decay = kDecay}, kGroups); };
}
inline Make adamod() {
  return [](const NamedTensors& p) {
    return make_adamod(p, {.beta3 = 0.9, .weight_decay = kDecay}, kGroups);
  };
}
inline Make rmsprop() {
  return [](const NamedTensors& p) {
    return make_rmsprop(p, {.weight_decay = kDecay, .momentum = 0.9, .centered = true}, kGroups);
  };
}
inline Make adagrad() {
  return [](const NamedTensors& p) {
    return make_adagrad(p, {.lr_decay = 0.01, .weight_decay = kDecay}, kGroups);
  };
}
inline Make lars() {
  return [](const NamedTensors& p) { return make_lars(p, {.weight_decay = kDecay}, kGroups); };
}
inline Make lamb() {
  return [](const NamedTensors& p) {
    return make_lamb(p, {.weight_decay = kDecay, .no_adapt = {"*.bias"}}, kGroups);
  };
}

inline Make amsgrad() {
  return [](const NamedTensors& p) {
    return make_adamw(p, {.weight_decay = kDecay, .amsgrad = true}, kGroups);
  };
}
inline Make dampened() {
  return [](const NamedTensors& p) {
    return make_sgd(p, {.momentum = 0.9, .weight_decay = kDecay, .dampening = 0.3}, kGroups);
  };
}
inline Make adafactor() {
  return [](const NamedTensors& p) { return make_adafactor(p, {.weight_decay = kDecay}, kGroups); };
}

inline std::map<std::string, Make> every() {
  return {{"AdaMod", adamod()},       {"Lion", lion()},       {"RMSprop", rmsprop()},
          {"Adagrad", adagrad()},     {"LARS", lars()},       {"LAMB", lamb()},
          {"Adafactor", adafactor()}, {"AMSGrad", amsgrad()}, {"SGD, dampened", dampened()}};
}

}  // namespace trireme
