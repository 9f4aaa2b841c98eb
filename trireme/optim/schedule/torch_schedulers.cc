// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/schedule/torch_schedulers.h"

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/check.h"

namespace trireme::lr_scheduler {
namespace {

double as_double(int64_t n) { return static_cast<double>(n); }

void check_factor(const char* type, const char* name, double factor) {
  check<UsageError>(factor >= 0 && factor <= 1, "{}: {} is {}: it must be in [0, 1]", type, name,
                    factor);
}

void check_finite(const char* type, const char* name, double value) {
  check<UsageError>(std::isfinite(value), "{}: {} is {}: it must be a number", type, name, value);
}

void check_count(const char* type, const char* name, int64_t value) {
  check<UsageError>(value >= 1, "{}: {} is {}: it must be 1 or more", type, name, value);
}

std::vector<LambdaLR::Factor> for_each_group(const char* type, const ParamGroups& groups,
                                             std::vector<LambdaLR::Factor> factors) {
  check<UsageError>(factors.size() == groups.size(), "{}: {} functions for {} parameter groups",
                    type, factors.size(), groups.size());
  for (const auto& factor : factors)
    check<UsageError>(static_cast<bool>(factor), "{}: a function is empty", type);
  return factors;
}

constexpr auto initial = [](int64_t /*step*/, const auto& group) { return group.base_lr; };

std::string key_of(const std::string& name) {  // an archive's keys have no dots
  std::string key = name;
  std::replace(key.begin(), key.end(), '.', '/');
  return key;
}

class ToArchive final : public StateVisitor {
 public:
  explicit ToArchive(torch::serialize::OutputArchive& archive) : archive_(archive) {}
  void tensor(const Slice&, at::Tensor) override {}
  void value(const std::string& name, int64_t& v) override { archive_.write(key_of(name), v); }
  void value(const std::string& name, double& v) override { archive_.write(key_of(name), v); }
  void value(const std::string& name, std::string& v) override { archive_.write(key_of(name), v); }

 private:
  torch::serialize::OutputArchive& archive_;
};

class FromArchive final : public StateVisitor {
 public:
  explicit FromArchive(torch::serialize::InputArchive& archive) : archive_(archive) {}
  Purpose purpose() const override { return Purpose::load; }
  void tensor(const Slice&, at::Tensor) override {}
  void value(const std::string& name, int64_t& v) override {
    const c10::IValue found = read(name);
    check<UsageError>(found.isInt(), "learning-rate schedule: '{}' is not a whole number", name);
    v = found.toInt();
  }
  void value(const std::string& name, double& v) override {
    const c10::IValue found = read(name);
    check<UsageError>(found.isDouble(), "learning-rate schedule: '{}' is not a number", name);
    v = found.toDouble();
  }
  void value(const std::string& name, std::string& v) override {
    const c10::IValue found = read(name);
    check<UsageError>(found.isString(), "learning-rate schedule: '{}' is not a text", name);
    v = found.toStringRef();
  }

 private:
  c10::IValue read(const std::string& name) {
    c10::IValue found;
    check<UsageError>(archive_.try_read(key_of(name), found),
                      "learning-rate schedule: the file has no '{}': it is not the state of a "
                      "schedule such as this",
                      name);
    return found;
  }
  torch::serialize::InputArchive& archive_;
};

}  // namespace

Scheduler::~Scheduler() = default;

Scheduler::Scheduler(const char* type, ParamGroups groups)
    : groups_(std::move(groups)), type_(type) {
  groups_.remember_initial_lr();
  for (size_t i = 0; i < groups_.size(); ++i) base_lrs_.push_back(groups_.initial_lr(i));
}

void Scheduler::step() {
  ++last_epoch_;
  set(next_rates());
}

void Scheduler::begin() { Scheduler::step(); }

void Scheduler::restart() {
  last_epoch_ = 0;
  set(first_rates());
}

void Scheduler::set(const std::vector<double>& rates) {
  for (size_t i = 0; i < rates.size(); ++i) groups_.set_lr(i, rates[i]);
  last_lr_ = rates;
}

std::vector<double> Scheduler::now() const { return scaled(1); }

std::vector<double> Scheduler::scaled(double factor) const {
  std::vector<double> rates;
  for (size_t i = 0; i < groups_.size(); ++i) rates.push_back(groups_.lr(i) * factor);
  return rates;
}

std::vector<double> Scheduler::first_rates() { return next_rates(); }

void Scheduler::state(StateVisitor& visitor) {
  const std::vector<double> before = last_lr_;
  visit(visitor, "lr_scheduler.");
  loaded();
  // After a load the groups follow; a save leaves rates that other code has set.
  if (!visitor.loading() && last_lr_ == before) return;
  for (size_t i = 0; i < last_lr_.size(); ++i) groups_.set_lr(i, last_lr_[i]);
}

void Scheduler::visit(StateVisitor& visitor, const std::string& prefix) {
  visitor.constant(prefix + "type", type_);
  int64_t groups = static_cast<int64_t>(groups_.size());
  visitor.value(prefix + "groups", groups);
  check<UsageError>(
      groups == static_cast<int64_t>(groups_.size()),
      "learning-rate schedule: the state has {} parameter groups, and this schedule {}", groups,
      groups_.size());
  visitor.value(prefix + "last_epoch", last_epoch_);
  for (size_t i = 0; i < base_lrs_.size(); ++i) {
    visitor.value(prefix + "base_lr." + std::to_string(i), base_lrs_[i]);
    visitor.value(prefix + "last_lr." + std::to_string(i), last_lr_[i]);
  }
}

torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                            const Scheduler& schedule) {
  ToArchive visitor(archive);
  const_cast<Scheduler&>(schedule).state(visitor);  // it reads
  return archive;
}

torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                           Scheduler& schedule) {
  FromArchive visitor(archive);
  schedule.state(visitor);
  return archive;
}

GroupSchedule::GroupSchedule(const char* type, ParamGroups groups, Rate next, Rate first)
    : Scheduler(type, std::move(groups)), next_(std::move(next)), first_(std::move(first)) {}

std::vector<double> GroupSchedule::each(const Rate& rate) const {
  std::vector<double> rates;
  for (size_t i = 0; i < base_lrs_.size(); ++i)
    rates.push_back(rate(last_epoch_, {i, groups_.lr(i), base_lrs_[i]}));
  return rates;
}

std::vector<double> GroupSchedule::next_rates() { return each(next_); }
std::vector<double> GroupSchedule::first_rates() { return each(first_ ? first_ : next_); }

LambdaLR::LambdaLR(ParamGroups groups, Factor factor)
    : LambdaLR(groups, std::vector<Factor>(groups.size(), factor)) {}

LambdaLR::LambdaLR(ParamGroups groups, std::vector<Factor> factors)
    : GroupSchedule("LambdaLR", groups,
                    [f = for_each_group("LambdaLR", groups, std::move(factors))](
                        int64_t step, const Group& g) { return g.base_lr * f[g.index](step); }) {
  begin();
}

MultiplicativeLR::MultiplicativeLR(ParamGroups groups, Factor factor)
    : MultiplicativeLR(groups, std::vector<Factor>(groups.size(), factor)) {}

MultiplicativeLR::MultiplicativeLR(ParamGroups groups, std::vector<Factor> factors)
    : GroupSchedule(
          "MultiplicativeLR", groups,
          [f = for_each_group("MultiplicativeLR", groups, std::move(factors))](
              int64_t step, const Group& g) { return step > 0 ? g.lr * f[g.index](step) : g.lr; },
          [](int64_t, const Group& g) { return g.lr; }) {
  begin();
}

// Where torch has a closed form, SequentialLR begins a schedule with it: the second function.

StepLR::StepLR(ParamGroups groups, int64_t step_size, double gamma)
    : GroupSchedule(
          "StepLR", std::move(groups),
          [=](int64_t step, const Group& g) {
            return step == 0 || step % step_size != 0 ? g.lr : g.lr * gamma;
          },
          initial) {
  check_count("StepLR", "step_size", step_size);
  check_finite("StepLR", "gamma", gamma);
  begin();
}

MultiStepLR::MultiStepLR(ParamGroups groups, std::vector<int64_t> milestones, double gamma)
    : GroupSchedule(
          "MultiStepLR", std::move(groups),
          [=](int64_t step, const Group& g) {
            const auto times = std::count(milestones.begin(), milestones.end(), step);
            return times == 0 ? g.lr : g.lr * std::pow(gamma, as_double(times));
          },
          [=](int64_t, const Group& g) {
            const auto times = std::count_if(milestones.begin(), milestones.end(),
                                             [](int64_t milestone) { return milestone <= 0; });
            return g.base_lr * std::pow(gamma, as_double(times));
          }) {
  check<UsageError>(std::is_sorted(milestones.begin(), milestones.end()),
                    "MultiStepLR: the milestones must increase");
  check_finite("MultiStepLR", "gamma", gamma);
  begin();
}

ConstantLR::ConstantLR(ParamGroups groups, double factor, int64_t total_iters)
    : GroupSchedule(
          "ConstantLR", std::move(groups),
          [=](int64_t step, const Group& g) {
            if (step == 0) return g.lr * factor;
            return step == total_iters ? g.lr * (1.0 / factor) : g.lr;
          },
          [=](int64_t, const Group& g) {
            return total_iters <= 0 ? g.base_lr : g.base_lr * factor;
          }) {
  check_factor("ConstantLR", "factor", factor);
  check<UsageError>(
      factor > 0, "ConstantLR: factor is 0, from which the rate could never return: use LambdaLR");
  begin();
}

LinearLR::LinearLR(ParamGroups groups, double start_factor, double end_factor, int64_t total_iters)
    : GroupSchedule(
          "LinearLR", std::move(groups),
          [=](int64_t step, const Group& g) {
            if (step == 0) return g.lr * start_factor;
            if (step > total_iters) return g.lr;
            const double rise = end_factor - start_factor;
            return g.lr * (1. + rise / (as_double(total_iters) * start_factor +
                                        as_double(step - 1) * rise));
          },
          [=](int64_t, const Group& g) { return g.base_lr * start_factor; }) {
  check_factor("LinearLR", "start_factor", start_factor);
  check_factor("LinearLR", "end_factor", end_factor);
  check<UsageError>(start_factor > 0,
                    "LinearLR: start_factor is 0, from which a rate that is multiplied cannot "
                    "rise: choose a small one such as 1e-3");
  check_count("LinearLR", "total_iters", total_iters);
  begin();
}

ExponentialLR::ExponentialLR(ParamGroups groups, double gamma)
    : GroupSchedule(
          "ExponentialLR", std::move(groups),
          [=](int64_t step, const Group& g) { return step == 0 ? g.lr : g.lr * gamma; }, initial) {
  check_finite("ExponentialLR", "gamma", gamma);
  begin();
}

PolynomialLR::PolynomialLR(ParamGroups groups, int64_t total_iters, double power)
    : GroupSchedule(
          "PolynomialLR", std::move(groups),
          [=](int64_t step, const Group& g) {
            if (step == 0 || step > total_iters) return g.lr;
            const double total = as_double(total_iters);
            return g.lr *
                   std::pow((1.0 - as_double(step) / total) / (1.0 - as_double(step - 1) / total),
                            power);
          },
          initial) {
  check_count("PolynomialLR", "total_iters", total_iters);
  check_finite("PolynomialLR", "power", power);
  begin();
}

CosineAnnealingLR::CosineAnnealingLR(ParamGroups groups, int64_t T_max, double eta_min)
    : GroupSchedule(
          "CosineAnnealingLR", std::move(groups),
          [=](int64_t step, const Group& g) {
            using std::numbers::pi;
            if (step == 0) return g.lr;
            const double period = as_double(T_max);
            if ((step - 1 - T_max) % (2 * T_max) == 0)
              return g.lr + (g.base_lr - eta_min) * (1 - std::cos(pi / period)) / 2;
            return (1 + std::cos(pi * as_double(step) / period)) /
                       (1 + std::cos(pi * as_double(step - 1) / period)) * (g.lr - eta_min) +
                   eta_min;
          },
          initial) {
  check_count("CosineAnnealingLR", "T_max", T_max);
  check_finite("CosineAnnealingLR", "eta_min", eta_min);
  begin();
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(ParamGroups groups, int64_t T_0,
                                                         int64_t T_mult, double eta_min)
    : GroupSchedule("CosineAnnealingWarmRestarts", std::move(groups),
                    [form = WarmRestartsForm{T_0, T_mult, eta_min}](int64_t step, const Group& g) {
                      return form.at(step, g.base_lr);
                    }) {
  WarmRestartsForm{T_0, T_mult, eta_min}.check_options();
  begin();
}

}  // namespace trireme::lr_scheduler
