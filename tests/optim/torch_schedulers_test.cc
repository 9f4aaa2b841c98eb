// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/schedule/torch_schedulers.h"

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/schedule/lr_schedule.h"

namespace torch_schedulers_test {

using namespace trireme;
using namespace trireme::lr_scheduler;
using nlohmann::json;

namespace {

// What torch.optim.lr_scheduler gives; torch_schedulers.py writes it.
const json& reference() {
  static const json table = [] {
    std::ifstream in(trireme::testing::source_path("/tests/optim/torch_schedulers.json"));
    return json::parse(in);
  }();
  return table;
}

std::vector<double> numbers_of(const json& value) {
  if (value.is_array()) return value.get<std::vector<double>>();
  return {value.get<double>()};
}

OneCycleLROptions one_cycle_options(const json& a) {
  OneCycleLROptions o;
  o.max_lr = numbers_of(a.at("max_lr"));
  o.total_steps = a.value("total_steps", o.total_steps);
  o.epochs = a.value("epochs", o.epochs);
  o.steps_per_epoch = a.value("steps_per_epoch", o.steps_per_epoch);
  o.pct_start = a.value("pct_start", o.pct_start);
  o.anneal_strategy = a.value("anneal_strategy", o.anneal_strategy);
  o.cycle_momentum = a.value("cycle_momentum", o.cycle_momentum);
  if (a.contains("base_momentum")) o.base_momentum = numbers_of(a["base_momentum"]);
  if (a.contains("max_momentum")) o.max_momentum = numbers_of(a["max_momentum"]);
  o.div_factor = a.value("div_factor", o.div_factor);
  o.final_div_factor = a.value("final_div_factor", o.final_div_factor);
  o.three_phase = a.value("three_phase", o.three_phase);
  return o;
}

CyclicLROptions cyclic_options(const json& a) {
  CyclicLROptions o;
  o.base_lr = numbers_of(a.at("base_lr"));
  o.max_lr = numbers_of(a.at("max_lr"));
  o.step_size_up = a.value("step_size_up", o.step_size_up);
  if (a.contains("step_size_down") && !a["step_size_down"].is_null())
    o.step_size_down = a["step_size_down"];
  o.mode = a.value("mode", o.mode);
  o.gamma = a.value("gamma", o.gamma);
  if (a.contains("scale_fn"))
    o.scale_fn = [](double x) { return 0.5 * (1 + std::sin(x * std::numbers::pi / 2)); };
  o.scale_mode = a.value("scale_mode", o.scale_mode);
  o.cycle_momentum = a.value("cycle_momentum", o.cycle_momentum);
  if (a.contains("base_momentum")) o.base_momentum = numbers_of(a["base_momentum"]);
  if (a.contains("max_momentum")) o.max_momentum = numbers_of(a["max_momentum"]);
  return o;
}

std::shared_ptr<Scheduler> make(const json& spec, ParamGroups g) {
  const std::string type = spec.at("type");
  const json a = spec.value("args", json::object());
  std::vector<std::shared_ptr<Scheduler>> of;
  for (const json& one : spec.value("of", json::array())) of.push_back(make(one, g));
  if (type == "LambdaLR")
    return std::make_shared<LambdaLR>(g,
                                      [](int64_t s) { return 1 / (1 + static_cast<double>(s)); });
  if (type == "MultiplicativeLR")
    return std::make_shared<MultiplicativeLR>(
        g, [](int64_t s) { return 0.9 + 0.01 * static_cast<double>(s); });
  if (type == "StepLR") return std::make_shared<StepLR>(g, a.at("step_size"), a.at("gamma"));
  if (type == "MultiStepLR")
    return std::make_shared<MultiStepLR>(g, a.at("milestones").get<std::vector<int64_t>>(),
                                         a.at("gamma"));
  if (type == "ExponentialLR") return std::make_shared<ExponentialLR>(g, a.at("gamma"));
  if (type == "ConstantLR")
    return std::make_shared<ConstantLR>(g, a.at("factor"), a.at("total_iters"));
  if (type == "LinearLR")
    return std::make_shared<LinearLR>(g, a.at("start_factor"), a.value("end_factor", 1.0),
                                      a.at("total_iters"));
  if (type == "PolynomialLR")
    return std::make_shared<PolynomialLR>(g, a.at("total_iters"), a.value("power", 1.0));
  if (type == "CosineAnnealingLR")
    return std::make_shared<CosineAnnealingLR>(g, a.at("T_max"), a.value("eta_min", 0.0));
  if (type == "CosineAnnealingWarmRestarts")
    return std::make_shared<CosineAnnealingWarmRestarts>(
        g, a.at("T_0"), a.value("T_mult", int64_t{1}), a.value("eta_min", 0.0));
  if (type == "OneCycleLR") return std::make_shared<OneCycleLR>(g, one_cycle_options(a));
  if (type == "CyclicLR") return std::make_shared<CyclicLR>(g, cyclic_options(a));
  if (type == "SequentialLR")
    return std::make_shared<SequentialLR>(of, spec.at("milestones").get<std::vector<int64_t>>());
  if (type == "ChainedScheduler") return std::make_shared<ChainedScheduler>(of);
  throw std::runtime_error("no such schedule: " + type);
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const json& test) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  std::unique_ptr<torch::optim::OptimizerOptions> options;
  for (double lr : test.at("lrs").get<std::vector<double>>()) {
    if (test.at("optimizer") == "Adam")
      options = std::make_unique<torch::optim::AdamOptions>(
          torch::optim::AdamOptions(lr).betas({0.9, 0.98}));
    else
      options =
          std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(lr).momentum(0.5));
    groups.emplace_back(std::vector<at::Tensor>{at::zeros({1}).set_requires_grad(true)},
                        std::move(options));
  }
  if (test.at("optimizer") == "Adam") return std::make_unique<torch::optim::Adam>(groups);
  return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(1));
}

double momentum_of(const torch::optim::OptimizerParamGroup& group) {
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&group.options()))
    return sgd->momentum();
  return std::get<0>(dynamic_cast<const torch::optim::AdamOptions&>(group.options()).betas());
}

// Rates of a recursion differ from torch's by the last bits of pow and cos alone.
void expect_near(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, 1e-12 * std::max(1.0, std::abs(want))) << what;
}

void expect_row(const json& test, size_t step, torch::optim::Optimizer& optimizer) {
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const std::string what =
        test.at("spec").dump() + " step " + std::to_string(step) + " group " + std::to_string(g);
    auto& group = optimizer.param_groups()[g];
    expect_near(group.options().get_lr(), test.at("rates")[step][g], what);
    expect_near(momentum_of(group), test.at("momentum")[step][g], what + " (momentum)");
  }
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(optim_torch_schedulers, give_torchs_rates_and_momenta_step_by_step) {
  ASSERT_GT(reference().at("cases").size(), 150u);
  for (const json& test : reference().at("cases")) {
    auto optimizer = optimizer_of(test);
    auto schedule = make(test.at("spec"), *optimizer);
    for (size_t step = 0; step <= test.at("steps").get<size_t>(); ++step) {
      if (step > 0) schedule->step();
      expect_row(test, step, *optimizer);
      expect_near(schedule->lr(), test.at("rates")[step][0], "lr()");
    }
    if (HasFailure()) return;
  }
}

// The state is saved at every third step into a schedule and an optimizer made anew.
TEST(optim_torch_schedulers, go_on_from_a_saved_state) {
  for (const json& test : reference().at("cases")) {
    auto optimizer = optimizer_of(test);
    auto schedule = make(test.at("spec"), *optimizer);
    for (size_t step = 0; step <= test.at("steps").get<size_t>(); ++step) {
      if (step > 0) schedule->step();
      if (step % 3 == 2) {
        std::stringstream file;
        torch::save(*schedule, file);
        optimizer = optimizer_of(test);
        schedule = make(test.at("spec"), *optimizer);
        torch::load(*schedule, file);
        EXPECT_EQ(schedule->last_epoch(), static_cast<int64_t>(step));
      }
      expect_row(test, step, *optimizer);
    }
    if (HasFailure()) return;
  }
}

TEST(optim_torch_schedulers, set_the_rate_of_an_optimizer_of_ours) {
  at::Tensor w = at::ones({3}).set_requires_grad(true);
  auto sgd = make_sgd({{"w", w}});
  StepLR schedule(0.5, 2, 0.1);
  double moved = 0;
  for (int step = 0; step < 4; ++step) {
    w.mutable_grad() = at::ones({3});
    sgd->step(schedule.lr());
    schedule.step();
    moved += step < 2 ? 0.5 : 0.05;
  }
  EXPECT_NEAR(w[0].item<double>(), 1 - moved, 1e-6);
}

TEST(optim_torch_schedulers, refuse_what_torch_refuses_and_schedules_of_different_groups) {
  at::Tensor w = at::ones({1}).set_requires_grad(true);
  torch::optim::SGD sgd({w}, torch::optim::SGDOptions(0.1));
  torch::optim::Adagrad adagrad({w}, torch::optim::AdagradOptions(0.1));
  EXPECT_TRUE(contains(refusal([&] { StepLR(sgd, 0); }), "step_size is 0"));
  EXPECT_TRUE(contains(refusal([&] { LinearLR(sgd, 1.5); }), "start_factor"));
  EXPECT_TRUE(contains(refusal([&] { ConstantLR(sgd, -1); }), "factor"));
  EXPECT_TRUE(contains(refusal([&] { CosineAnnealingWarmRestarts(sgd, 0); }), "T_0"));
  EXPECT_TRUE(contains(
      refusal([&] { CyclicLR(sgd, {.base_lr = {0.1}, .max_lr = {1}, .mode = "x"}); }), "mode"));
  EXPECT_TRUE(contains(refusal([&] { OneCycleLR(sgd, {.max_lr = {1}}); }), "total_steps"));
  EXPECT_TRUE(contains(refusal([&] {
                         OneCycleLR(sgd, {.max_lr = {1, 2, 3}, .total_steps = 5});
                       }),
                       "3 values"));
  EXPECT_TRUE(contains(refusal([&] { OneCycleLR(adagrad, {.max_lr = {1}, .total_steps = 5}); }),
                       "no momentum"));
  EXPECT_TRUE(contains(refusal([&] { OneCycleLR(0.1, {.max_lr = {1}, .total_steps = 5}); }),
                       "no momentum"));
  EXPECT_TRUE(contains(refusal([&] {
                         OneCycleLR s(sgd, {.max_lr = {1}, .total_steps = 5});
                         for (int i = 0; i < 6; ++i) s.step();
                       }),
                       "ends there"));
  auto a = std::make_shared<StepLR>(sgd, 2);
  auto b = std::make_shared<ExponentialLR>(sgd, 0.9);
  EXPECT_TRUE(contains(refusal([&] { ChainedScheduler({a, b}); }), "one ParamGroups"));
  ParamGroups groups(sgd);
  auto c = std::make_shared<StepLR>(groups, 2), d = std::make_shared<StepLR>(groups, 3);
  EXPECT_TRUE(contains(refusal([&] { SequentialLR({c, d}, {1, 2}); }), "milestones"));
  std::stringstream file;
  torch::save(*c, file);
  ExponentialLR other(sgd, 0.9);
  EXPECT_TRUE(contains(refusal([&] { torch::load(other, file); }),
                       "'lr_scheduler.type' is 'StepLR' there"));
}

// LRScheduler, which trireme train uses, has the same schedules as functions of the step.
TEST(optim_torch_schedulers, closed_forms_are_torchs_rates) {
  int checked = 0;
  for (const json& test : reference().at("cases")) {
    const json& spec = test.at("spec");
    const json a = spec.value("args", json::object());
    if (test.at("lrs").size() != 1 || a.contains("scale_fn")) continue;
    ScheduleOptions o{.type = spec.at("type"), .lr = test.at("lrs")[0]};
    auto number = [&](const char* name, std::optional<double>& v) {
      if (a.contains(name)) v = a[name].get<double>();
    };
    auto count = [&](const char* name, std::optional<int64_t>& v) {
      if (a.contains(name) && !a[name].is_null()) v = a[name].get<int64_t>();
    };
    if (o.type == "MultiStepLR")
      o.milestones = a.at("milestones").get<std::vector<int64_t>>();
    else if (o.type == "OneCycleLR" || o.type == "CyclicLR") {
      number("max_lr", o.max_lr);
      number("base_lr", o.base_lr);
      count("total_steps", o.total_steps);
      number("pct_start", o.pct_start);
      if (a.contains("anneal_strategy")) o.anneal_strategy = a["anneal_strategy"];
      if (a.contains("three_phase")) o.three_phase = a["three_phase"].get<bool>();
      count("step_size_up", o.step_size_up);
      count("step_size_down", o.step_size_down);
      if (a.contains("mode")) o.mode = a["mode"];
    } else if (o.type != "StepLR" && o.type != "ExponentialLR" && !o.type.starts_with("Cosine")) {
      continue;
    }
    number("gamma", o.gamma);
    count("step_size", o.step_size);
    count("T_max", o.T_max);
    count("T_0", o.T_0);
    count("T_mult", o.T_mult);
    number("eta_min", o.eta_min);
    const LRScheduler schedule(o);
    for (size_t step = 0; step <= test.at("steps").get<size_t>(); ++step)
      EXPECT_NEAR(schedule.lr_at(static_cast<int64_t>(step)),
                  test.at("rates")[step][0].get<double>(), 1e-12)
          << spec.dump() << " step " << step;
    if (HasFailure()) return;
    ++checked;
  }
  EXPECT_GT(checked, 60);
}

}  // namespace torch_schedulers_test
