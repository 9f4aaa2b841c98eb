// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/torch_schedulers.h"

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
  check<UsageError>(factor >= 0 && factor <= 1, "{}: {} is {}: it must lie in [0, 1]", type, name,
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
  visit(visitor, "lr_scheduler.");
  loaded();
  // A saving visitor changed nothing; after a loading one the groups follow.
  for (size_t i = 0; i < last_lr_.size(); ++i) groups_.set_lr(i, last_lr_[i]);
}

void Scheduler::visit(StateVisitor& visitor, const std::string& prefix) {
  std::string type = type_;
  visitor.value(prefix + "type", type);
  check<UsageError>(type == type_, "learning-rate schedule: the state is of a {}, this is a {}",
                    type, type_);
  int64_t groups = static_cast<int64_t>(groups_.size());
  visitor.value(prefix + "groups", groups);
  check<UsageError>(groups == static_cast<int64_t>(groups_.size()),
                    "learning-rate schedule: the state is of {} parameter groups, here are {}",
                    groups, groups_.size());
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

LambdaLR::LambdaLR(ParamGroups groups, Factor factor)
    : LambdaLR(groups, std::vector<Factor>(groups.size(), factor)) {}

LambdaLR::LambdaLR(ParamGroups groups, std::vector<Factor> factors)
    : Scheduler("LambdaLR", std::move(groups)),
      factors_(for_each_group("LambdaLR", groups_, std::move(factors))) {
  begin();
}

std::vector<double> LambdaLR::next_rates() {
  std::vector<double> rates;
  for (size_t i = 0; i < base_lrs_.size(); ++i)
    rates.push_back(base_lrs_[i] * factors_[i](last_epoch_));
  return rates;
}

MultiplicativeLR::MultiplicativeLR(ParamGroups groups, Factor factor)
    : MultiplicativeLR(groups, std::vector<Factor>(groups.size(), factor)) {}

MultiplicativeLR::MultiplicativeLR(ParamGroups groups, std::vector<Factor> factors)
    : Scheduler("MultiplicativeLR", std::move(groups)),
      factors_(for_each_group("MultiplicativeLR", groups_, std::move(factors))) {
  begin();
}

std::vector<double> MultiplicativeLR::next_rates() {
  std::vector<double> rates = now();
  if (last_epoch_ > 0)
    for (size_t i = 0; i < rates.size(); ++i) rates[i] *= factors_[i](last_epoch_);
  return rates;
}

StepLR::StepLR(ParamGroups groups, int64_t step_size, double gamma)
    : Scheduler("StepLR", std::move(groups)), step_size_(step_size), gamma_(gamma) {
  check_count("StepLR", "step_size", step_size);
  check_finite("StepLR", "gamma", gamma);
  begin();
}

std::vector<double> StepLR::next_rates() {
  return scaled(last_epoch_ == 0 || last_epoch_ % step_size_ != 0 ? 1 : gamma_);
}

MultiStepLR::MultiStepLR(ParamGroups groups, std::vector<int64_t> milestones, double gamma)
    : Scheduler("MultiStepLR", std::move(groups)),
      milestones_(std::move(milestones)),
      gamma_(gamma) {
  check<UsageError>(std::is_sorted(milestones_.begin(), milestones_.end()),
                    "MultiStepLR: the milestones must increase");
  check_finite("MultiStepLR", "gamma", gamma);
  begin();
}

std::vector<double> MultiStepLR::next_rates() {
  const auto times = std::count(milestones_.begin(), milestones_.end(), last_epoch_);
  return scaled(times == 0 ? 1 : std::pow(gamma_, as_double(times)));
}

ConstantLR::ConstantLR(ParamGroups groups, double factor, int64_t total_iters)
    : Scheduler("ConstantLR", std::move(groups)), factor_(factor), total_iters_(total_iters) {
  check_factor("ConstantLR", "factor", factor);
  check<UsageError>(factor > 0,
                    "ConstantLR: factor is 0: the rate could not come back from it, take LambdaLR");
  begin();
}

std::vector<double> ConstantLR::next_rates() {
  if (last_epoch_ == 0) return scaled(factor_);
  return scaled(last_epoch_ == total_iters_ ? 1.0 / factor_ : 1);
}

LinearLR::LinearLR(ParamGroups groups, double start_factor, double end_factor, int64_t total_iters)
    : Scheduler("LinearLR", std::move(groups)),
      start_factor_(start_factor),
      end_factor_(end_factor),
      total_iters_(total_iters) {
  check_factor("LinearLR", "start_factor", start_factor);
  check_factor("LinearLR", "end_factor", end_factor);
  check<UsageError>(
      start_factor > 0,
      "LinearLR: start_factor is 0: what is multiplied could not rise from it, choose "
      "a small one such as 1e-3");
  check_count("LinearLR", "total_iters", total_iters);
  begin();
}

std::vector<double> LinearLR::next_rates() {
  if (last_epoch_ == 0) return scaled(start_factor_);
  if (last_epoch_ > total_iters_) return now();
  const double rise = end_factor_ - start_factor_;
  return scaled(
      1. + rise / (as_double(total_iters_) * start_factor_ + as_double(last_epoch_ - 1) * rise));
}

ExponentialLR::ExponentialLR(ParamGroups groups, double gamma)
    : Scheduler("ExponentialLR", std::move(groups)), gamma_(gamma) {
  check_finite("ExponentialLR", "gamma", gamma);
  begin();
}

std::vector<double> ExponentialLR::next_rates() { return scaled(last_epoch_ == 0 ? 1 : gamma_); }

PolynomialLR::PolynomialLR(ParamGroups groups, int64_t total_iters, double power)
    : Scheduler("PolynomialLR", std::move(groups)), total_iters_(total_iters), power_(power) {
  check_count("PolynomialLR", "total_iters", total_iters);
  check_finite("PolynomialLR", "power", power);
  begin();
}

std::vector<double> PolynomialLR::next_rates() {
  if (last_epoch_ == 0 || last_epoch_ > total_iters_) return now();
  const double total = as_double(total_iters_);
  return scaled(std::pow(
      (1.0 - as_double(last_epoch_) / total) / (1.0 - as_double(last_epoch_ - 1) / total), power_));
}

CosineAnnealingLR::CosineAnnealingLR(ParamGroups groups, int64_t T_max, double eta_min)
    : Scheduler("CosineAnnealingLR", std::move(groups)), T_max_(T_max), eta_min_(eta_min) {
  check_count("CosineAnnealingLR", "T_max", T_max);
  check_finite("CosineAnnealingLR", "eta_min", eta_min);
  begin();
}

std::vector<double> CosineAnnealingLR::next_rates() {
  using std::numbers::pi;
  std::vector<double> rates = now();
  if (last_epoch_ == 0) return rates;
  const double period = as_double(T_max_);
  const bool turns = (last_epoch_ - 1 - T_max_) % (2 * T_max_) == 0;
  for (size_t i = 0; i < rates.size(); ++i)
    rates[i] = turns ? rates[i] + (base_lrs_[i] - eta_min_) * (1 - std::cos(pi / period)) / 2
                     : (1 + std::cos(pi * as_double(last_epoch_) / period)) /
                               (1 + std::cos(pi * as_double(last_epoch_ - 1) / period)) *
                               (rates[i] - eta_min_) +
                           eta_min_;
  return rates;
}

// Where torch has a closed form, SequentialLR begins a schedule by it.
std::vector<double> StepLR::first_rates() { return base_lrs_; }
std::vector<double> ExponentialLR::first_rates() { return base_lrs_; }
std::vector<double> PolynomialLR::first_rates() { return base_lrs_; }
std::vector<double> CosineAnnealingLR::first_rates() { return base_lrs_; }

std::vector<double> MultiStepLR::first_rates() {
  const auto times = std::count_if(milestones_.begin(), milestones_.end(),
                                   [](int64_t milestone) { return milestone <= 0; });
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= std::pow(gamma_, as_double(times));
  return rates;
}

std::vector<double> ConstantLR::first_rates() {
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= total_iters_ <= 0 ? 1 : factor_;
  return rates;
}

std::vector<double> LinearLR::first_rates() {
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= start_factor_;
  return rates;
}

}  // namespace trireme::lr_scheduler
