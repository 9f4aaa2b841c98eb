// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/schedule/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "trireme/base/check.h"
#include "trireme/optim/schedule/lr_schedule_torch.h"

namespace trireme {
namespace {

double cosine(double progress) {
  return (1 + std::cos(std::numbers::pi * std::min(1.0, progress))) / 2;
}

// Every option that is set must be one that the type reads.
void refuse_unused(const ScheduleOptions& o, const std::set<std::string>& used) {
  auto look = [&](const char* name, bool set) {
    check<UsageError>(!set || used.count(name), "scheduler '{}' does not use {}: remove it", o.type,
                      name);
  };
  look("warmup_num_steps", o.warmup_num_steps.has_value());
  look("total_num_steps", o.total_num_steps.has_value());
  look("min_ratio", o.min_ratio.has_value());
  look("power", o.power.has_value());
  look("decay_num_steps", o.decay_num_steps.has_value());
  look("decay_type", o.decay_type.has_value());
  look("warmup_type", o.warmup_type.has_value());
  look("warmup_min_lr", o.warmup_min_lr.has_value());
  look("warmup_max_lr", o.warmup_max_lr.has_value());
  look("warmup_min_ratio", o.warmup_min_ratio.has_value());
  look("cos_min_ratio", o.cos_min_ratio.has_value());
  look("cycle_min_lr", o.cycle_min_lr.has_value());
  look("cycle_max_lr", o.cycle_max_lr.has_value());
  look("decay_lr_rate", o.decay_lr_rate.has_value());
  look("cycle_first_step_size", o.cycle_first_step_size.has_value());
  look("cycle_second_step_size", o.cycle_second_step_size.has_value());
  look("decay_step_size", o.decay_step_size.has_value());
  look("lr_range_test_min_lr", o.lr_range_test_min_lr.has_value());
  look("lr_range_test_step_size", o.lr_range_test_step_size.has_value());
  look("lr_range_test_step_rate", o.lr_range_test_step_rate.has_value());
  look("lr_range_test_staircase", o.lr_range_test_staircase.has_value());
  look("step_size", o.step_size.has_value());
  look("milestones", o.milestones.has_value());
  look("gamma", o.gamma.has_value());
  look("T_max", o.T_max.has_value());
  look("T_0", o.T_0.has_value());
  look("T_mult", o.T_mult.has_value());
  look("eta_min", o.eta_min.has_value());
  look("max_lr", o.max_lr.has_value());
  look("total_steps", o.total_steps.has_value());
  look("pct_start", o.pct_start.has_value());
  look("anneal_strategy", o.anneal_strategy.has_value());
  look("div_factor", o.div_factor.has_value());
  look("final_div_factor", o.final_div_factor.has_value());
  look("three_phase", o.three_phase.has_value());
  look("base_lr", o.base_lr.has_value());
  look("step_size_up", o.step_size_up.has_value());
  look("step_size_down", o.step_size_down.has_value());
  look("mode", o.mode.has_value());
}

void check_rate(const ScheduleOptions& o, const char* name, double value) {
  check<UsageError>(value >= 0 && std::isfinite(value),
                    "scheduler '{}': {} is {}: it must be a number, 0 or more", o.type, name,
                    value);
}

void check_ratio(const ScheduleOptions& o, const char* name, double value) {
  check<UsageError>(value >= 0 && value <= 1, "scheduler '{}': {} is {}: it must be in [0, 1]",
                    o.type, name, value);
}

void check_steps(const ScheduleOptions& o, const char* name, int64_t value, int64_t least) {
  check<UsageError>(value >= least, "scheduler '{}': {} is {}: it must be {} or more", o.type, name,
                    value, least);
}

}  // namespace

LRScheduler::LRScheduler(const ScheduleOptions& o) {
  static constexpr std::pair<const char*, Kind> kKinds[] = {
      {"constant", Kind::kConstant},
      {"linear", Kind::kLinear},
      {"cosine", Kind::kCosine},
      {"polynomial", Kind::kPolynomial},
      {"inverse_sqrt", Kind::kInverseSqrt},
      {"WSD", Kind::kWsd},
      {"WarmupLR", Kind::kWarmup},
      {"WarmupDecayLR", Kind::kWarmupDecay},
      {"WarmupCosineLR", Kind::kWarmupCosine},
      {"OneCycle", Kind::kOneCycle},
      {"LRRangeTest", Kind::kRangeTest},
      {"StepLR", Kind::kTorch},
      {"MultiStepLR", Kind::kTorch},
      {"ExponentialLR", Kind::kTorch},
      {"CosineAnnealingLR", Kind::kTorch},
      {"CosineAnnealingWarmRestarts", Kind::kTorch},
      {"OneCycleLR", Kind::kTorch},
      {"CyclicLR", Kind::kTorch}};
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const auto& item) { return o.type == item.first; });
  check<UsageError>(found != std::end(kKinds),
                    "scheduler type '{}' is not known: use constant, linear, cosine, polynomial, "
                    "inverse_sqrt, WSD, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, "
                    "LRRangeTest, StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR, "
                    "CosineAnnealingWarmRestarts, OneCycleLR or CyclicLR",
                    o.type);
  kind_ = found->second;
  check_rate(o, "lr", o.lr);
  check<UsageError>(o.scale > 0 && std::isfinite(o.scale),
                    "scheduler '{}': scale is {}: it must be above 0", o.type, o.scale);
  scale_ = o.scale;
  if (kind_ < Kind::kWarmup)
    take_ours(o);
  else if (kind_ < Kind::kOneCycle)
    take_warmups(o);
  else if (kind_ == Kind::kOneCycle)
    take_one_cycle(o);
  else if (kind_ == Kind::kRangeTest)
    take_range_test(o);
  else
    take_torch(o);
}

void LRScheduler::take_ours(const ScheduleOptions& o) {
  std::set<std::string> used{"warmup_num_steps"};
  if (kind_ != Kind::kConstant) used.insert("min_ratio");
  if (kind_ != Kind::kConstant && kind_ != Kind::kInverseSqrt) used.insert("total_num_steps");
  if (kind_ == Kind::kPolynomial) used.insert("power");
  if (kind_ == Kind::kWsd) used.insert({"decay_num_steps", "decay_type"});
  refuse_unused(o, used);
  high_ = o.lr;
  end_ratio_ = o.min_ratio.value_or(0);
  check_ratio(o, "min_ratio", end_ratio_);
  warmup_ = o.warmup_num_steps.value_or(0);
  check_steps(o, "warmup_num_steps", warmup_, 0);
  if (used.contains("total_num_steps")) take_total(o, true);
  power_ = o.power.value_or(1);
  check<UsageError>(power_ > 0 && std::isfinite(power_),
                    "scheduler '{}': power is {}: it must be above 0", o.type, power_);
  if (kind_ != Kind::kWsd) return;
  check<UsageError>(o.decay_num_steps.has_value(), "scheduler '{}' needs decay_num_steps", o.type);
  decay_steps_ = *o.decay_num_steps;
  check_steps(o, "decay_num_steps", decay_steps_, 1);
  check<UsageError>(decay_steps_ <= total_ - warmup_,
                    "scheduler '{}': warmup_num_steps ({}) and decay_num_steps ({}) are more than "
                    "total_num_steps ({})",
                    o.type, warmup_, decay_steps_, total_);
  const std::string shape = o.decay_type.value_or("linear");
  check<UsageError>(
      shape == "linear" || shape == "cosine" || shape == "exponential" || shape == "minus_sqrt",
      "scheduler '{}': decay_type is '{}': use linear, cosine, exponential or minus_sqrt", o.type,
      shape);
  decay_ = shape == "linear"        ? Decay::kLinear
           : shape == "cosine"      ? Decay::kCosine
           : shape == "exponential" ? Decay::kExponential
                                    : Decay::kMinusSqrt;
}

void LRScheduler::take_warmups(const ScheduleOptions& o) {
  if (kind_ == Kind::kWarmupCosine) {
    refuse_unused(o, {"warmup_num_steps", "total_num_steps", "warmup_type", "warmup_min_ratio",
                      "cos_min_ratio"});
    low_ = o.lr * o.warmup_min_ratio.value_or(0);
    high_ = o.lr;
    end_ratio_ = o.cos_min_ratio.value_or(0.0001);
    check_ratio(o, "cos_min_ratio", end_ratio_);
  } else {
    std::set<std::string> used{"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr"};
    if (kind_ == Kind::kWarmupDecay) used.insert("total_num_steps");
    refuse_unused(o, used);
    low_ = o.warmup_min_lr.value_or(0);
    high_ = o.warmup_max_lr.value_or(kind_ == Kind::kWarmup ? o.lr : 0.001);
  }
  check_rate(o, "warmup_min_lr (or warmup_min_ratio)", low_);
  check_rate(o, "warmup_max_lr", high_);
  warmup_ = o.warmup_num_steps.value_or(1000);
  check_steps(o, "warmup_num_steps", warmup_, 1);
  warmup_ = std::max<int64_t>(2, warmup_);  // log(1) would divide by zero
  if (kind_ != Kind::kWarmup) take_total(o, false);
  const std::string shape = o.warmup_type.value_or("log");
  check<UsageError>(shape == "log" || shape == "linear",
                    "scheduler '{}': warmup_type is '{}': use log or linear", o.type, shape);
  log_ = shape == "log";
}

void LRScheduler::take_one_cycle(const ScheduleOptions& o) {
  refuse_unused(o, {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size",
                    "cycle_second_step_size", "decay_step_size"});
  check<UsageError>(o.cycle_min_lr && o.cycle_max_lr,
                    "scheduler '{}' needs cycle_min_lr and cycle_max_lr", o.type);
  low_ = *o.cycle_min_lr;
  high_ = *o.cycle_max_lr;
  check_rate(o, "cycle_min_lr", low_);
  check_rate(o, "cycle_max_lr", high_);
  check<UsageError>(low_ <= high_, "scheduler '{}': cycle_min_lr ({}) is above cycle_max_lr ({})",
                    o.type, low_, high_);
  rate_ = o.decay_lr_rate.value_or(0);
  check_rate(o, "decay_lr_rate", rate_);
  first_ = o.cycle_first_step_size.value_or(2000);
  second_ = o.cycle_second_step_size.value_or(first_);
  check_steps(o, "cycle_first_step_size", first_, 1);
  check_steps(o, "cycle_second_step_size", second_, 1);
  decay_steps_ = o.decay_step_size.value_or(0);
  check_steps(o, "decay_step_size", decay_steps_, 0);
  check<UsageError>(rate_ == 0 || decay_steps_ > 0,
                    "scheduler '{}': decay_lr_rate is {} and decay_step_size 0: nothing would "
                    "decay, set both or none",
                    o.type, rate_);
}

void LRScheduler::take_range_test(const ScheduleOptions& o) {
  refuse_unused(o, {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
                    "lr_range_test_staircase"});
  low_ = o.lr_range_test_min_lr.value_or(0.001);
  check_rate(o, "lr_range_test_min_lr", low_);
  first_ = o.lr_range_test_step_size.value_or(2000);
  check_steps(o, "lr_range_test_step_size", first_, 1);
  rate_ = o.lr_range_test_step_rate.value_or(1);
  check_rate(o, "lr_range_test_step_rate", rate_);
  staircase_ = o.lr_range_test_staircase.value_or(false);
}

void LRScheduler::take_torch(const ScheduleOptions& o) {
  detail::TorchForm form = detail::torch_form(o);
  refuse_unused(o, form.used);
  torch_ = std::move(form.at);
  torch_(0);  // throws where its first phase has no length
}

void LRScheduler::take_total(const ScheduleOptions& o, bool after_warmup) {
  check<UsageError>(o.total_num_steps.has_value(), "scheduler '{}' needs total_num_steps", o.type);
  total_ = *o.total_num_steps;
  check_steps(o, "total_num_steps", total_, 1);
  check<UsageError>(!after_warmup || total_ >= warmup_,
                    "scheduler '{}': warmup_num_steps ({}) is more than total_num_steps ({})",
                    o.type, warmup_, total_);
}

double LRScheduler::lr_at(int64_t step) const {
  check<UsageError>(step >= 0, "lr_at({}): steps are counted from 0", step);
  return scale_ * (kind_ < Kind::kWarmup      ? ours(step)
                   : kind_ < Kind::kOneCycle  ? warmups(step - 1)
                   : kind_ == Kind::kOneCycle ? one_cycle(step)
                   : kind_ == Kind::kTorch    ? torch_(step)
                                              : range_test(step));
}

double LRScheduler::ours(int64_t step) const {
  if (step < warmup_) return high_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  if (kind_ == Kind::kConstant) return high_;
  return high_ * after_warmup(step);
}

double LRScheduler::after_warmup(int64_t step) const {
  if (kind_ == Kind::kInverseSqrt)
    return std::max(end_ratio_, std::sqrt(static_cast<double>(std::max<int64_t>(1, warmup_)) /
                                          static_cast<double>(step + 1)));
  const int64_t start = kind_ == Kind::kWsd ? total_ - decay_steps_ : warmup_;
  if (step < start) return 1;  // WSD's plateau
  const double span = static_cast<double>(std::max<int64_t>(1, total_ - start));
  const double x = std::min(1.0, static_cast<double>(step - start) / span);
  double shape = 1 - x;
  if (kind_ == Kind::kCosine || (kind_ == Kind::kWsd && decay_ == Decay::kCosine))
    shape = cosine(x);
  else if (kind_ == Kind::kPolynomial)
    shape = std::pow(1 - x, power_);
  else if (kind_ == Kind::kWsd && decay_ == Decay::kExponential)
    shape = 2 * std::pow(0.5, x) - 1;
  else if (kind_ == Kind::kWsd && decay_ == Decay::kMinusSqrt)
    shape = 1 - std::sqrt(x);
  return end_ratio_ + (1 - end_ratio_) * shape;
}

double LRScheduler::warmup_gamma(int64_t iteration) const {
  return log_
             ? std::log(static_cast<double>(iteration + 1)) / std::log(static_cast<double>(warmup_))
             : static_cast<double>(iteration) / static_cast<double>(warmup_);
}

double LRScheduler::warmups(int64_t iteration) const {
  if (iteration < 0) return kind_ == Kind::kWarmupCosine ? 0 : low_;
  if (iteration < warmup_) return low_ + (high_ - low_) * warmup_gamma(iteration);
  if (kind_ == Kind::kWarmup) return high_;
  const double span = static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
  if (kind_ == Kind::kWarmupDecay)
    return low_ + (high_ - low_) * std::max(0.0, static_cast<double>(total_ - iteration) / span);
  const double progress = static_cast<double>(iteration - warmup_ + 1) / span;
  return high_ * (end_ratio_ + (1 - end_ratio_) * cosine(progress));
}

double LRScheduler::one_cycle(int64_t step) const {
  if (step <= first_)
    return low_ + (high_ - low_) * static_cast<double>(step) / static_cast<double>(first_);
  const int64_t cycle = first_ + second_;
  if (step <= cycle)
    return low_ + (high_ - low_) * static_cast<double>(cycle - step) / static_cast<double>(second_);
  if (rate_ == 0) return low_;
  return low_ / (1 + rate_ * static_cast<double>(step - cycle) / static_cast<double>(decay_steps_));
}

double LRScheduler::range_test(int64_t step) const {
  double interval = static_cast<double>(step) / static_cast<double>(first_);
  if (staircase_) interval = std::floor(interval);
  return low_ * (1 + rate_ * interval);
}

double large_batch_scale(const std::string& rule, int64_t batch, int64_t base_batch) {
  if (rule == "none") return 1;
  check<UsageError>(rule == "linear" || rule == "sqrt",
                    "learning-rate scaling '{}' is not known: use none, linear or sqrt", rule);
  check<UsageError>(batch > 0 && base_batch > 0,
                    "learning-rate scaling: the batch is {} samples and the base batch {}: both "
                    "must be 1 or more",
                    batch, base_batch);
  const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
  return rule == "linear" ? ratio : std::sqrt(ratio);
}

}  // namespace trireme
