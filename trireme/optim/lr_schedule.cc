// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "trireme/base/check.h"

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
  look("warmup_type", o.warmup_type.has_value());
  look("warmup_min_lr", o.warmup_min_lr.has_value());
  look("warmup_max_lr", o.warmup_max_lr.has_value());
  look("warmup_min_ratio", o.warmup_min_ratio.has_value());
  look("cos_min_ratio", o.cos_min_ratio.has_value());
}

void check_rate(const ScheduleOptions& o, const char* name, double value) {
  check<UsageError>(value >= 0 && std::isfinite(value),
                    "scheduler '{}': {} is {}: it must be a number, 0 or more", o.type, name,
                    value);
}

}  // namespace

LRScheduler::LRScheduler(const ScheduleOptions& o) {
  check_rate(o, "lr", o.lr);
  bool deepspeed_type = true;
  if (o.type == "constant" || o.type == "linear" || o.type == "cosine") {
    deepspeed_type = false;
    kind_ = o.type == "constant" ? Kind::kConstant
            : o.type == "linear" ? Kind::kLinear
                                 : Kind::kCosine;
    if (kind_ == Kind::kConstant)
      refuse_unused(o, {"warmup_num_steps"});
    else
      refuse_unused(o, {"warmup_num_steps", "total_num_steps", "min_ratio"});
    high_ = o.lr;
    end_ratio_ = o.min_ratio.value_or(0);
  } else if (o.type == "WarmupLR" || o.type == "WarmupDecayLR") {
    kind_ = o.type == "WarmupLR" ? Kind::kWarmup : Kind::kWarmupDecay;
    std::set<std::string> used{"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr"};
    if (kind_ == Kind::kWarmupDecay) used.insert("total_num_steps");
    refuse_unused(o, used);
    low_ = o.warmup_min_lr.value_or(0);
    high_ = o.warmup_max_lr.value_or(kind_ == Kind::kWarmup ? o.lr : 0.001);
  } else if (o.type == "WarmupCosineLR") {
    kind_ = Kind::kWarmupCosine;
    refuse_unused(o, {"warmup_num_steps", "total_num_steps", "warmup_type", "warmup_min_ratio",
                      "cos_min_ratio"});
    low_ = o.lr * o.warmup_min_ratio.value_or(0);
    high_ = o.lr;
    end_ratio_ = o.cos_min_ratio.value_or(0.0001);
  } else {
    fail<UsageError>(
        "scheduler type '{}' is not known: use constant, linear, cosine, WarmupLR, WarmupDecayLR "
        "or WarmupCosineLR",
        o.type);
  }
  check_rate(o, deepspeed_type ? "warmup_min_lr (or warmup_min_ratio)" : "lr", low_);
  check_rate(o, "warmup_max_lr", high_);
  check<UsageError>(end_ratio_ >= 0 && end_ratio_ <= 1,
                    "scheduler '{}': {} is {}: it must lie in [0, 1]", o.type,
                    deepspeed_type ? "cos_min_ratio" : "min_ratio", end_ratio_);

  warmup_ = o.warmup_num_steps.value_or(deepspeed_type ? 1000 : 0);
  check<UsageError>(warmup_ >= (deepspeed_type ? 1 : 0),
                    "scheduler '{}': warmup_num_steps is {}: it must be {}", o.type, warmup_,
                    deepspeed_type ? "1 or more" : "0 or more");
  if (deepspeed_type) warmup_ = std::max<int64_t>(2, warmup_);  // log(1) would divide by zero

  if (kind_ != Kind::kConstant && kind_ != Kind::kWarmup) {
    check<UsageError>(o.total_num_steps.has_value(), "scheduler '{}' needs total_num_steps",
                      o.type);
    total_ = *o.total_num_steps;
    check<UsageError>(total_ > 0, "scheduler '{}': total_num_steps is {}: it must be 1 or more",
                      o.type, total_);
    check<UsageError>(deepspeed_type || total_ >= warmup_,
                      "scheduler '{}': warmup_num_steps ({}) is more than total_num_steps ({})",
                      o.type, warmup_, total_);
  }
  const std::string warmup_type = o.warmup_type.value_or("log");
  check<UsageError>(warmup_type == "log" || warmup_type == "linear",
                    "scheduler '{}': warmup_type is '{}': use log or linear", o.type, warmup_type);
  log_ = warmup_type == "log";
}

double LRScheduler::lr_at(int64_t step) const {
  check<UsageError>(step >= 0, "lr_at({}): steps are counted from 0", step);
  return kind_ == Kind::kConstant || kind_ == Kind::kLinear || kind_ == Kind::kCosine
             ? ours(step)
             : deepspeed(step - 1);
}

double LRScheduler::ours(int64_t step) const {
  if (step < warmup_) return high_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  if (kind_ == Kind::kConstant) return high_;
  const double span = static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_) / span);
  const double shape = kind_ == Kind::kLinear ? 1 - progress : cosine(progress);
  return high_ * (end_ratio_ + (1 - end_ratio_) * shape);
}

double LRScheduler::warmup_gamma(int64_t iteration) const {
  return log_
             ? std::log(static_cast<double>(iteration + 1)) / std::log(static_cast<double>(warmup_))
             : static_cast<double>(iteration) / static_cast<double>(warmup_);
}

double LRScheduler::deepspeed(int64_t iteration) const {
  if (iteration < 0) return kind_ == Kind::kWarmupCosine ? 0 : low_;
  if (iteration < warmup_) return low_ + (high_ - low_) * warmup_gamma(iteration);
  if (kind_ == Kind::kWarmup) return high_;
  const double span = static_cast<double>(std::max<int64_t>(1, total_ - warmup_));
  if (kind_ == Kind::kWarmupDecay)
    return low_ + (high_ - low_) * std::max(0.0, static_cast<double>(total_ - iteration) / span);
  const double progress = static_cast<double>(iteration - warmup_ + 1) / span;
  return high_ * (end_ratio_ + (1 - end_ratio_) * cosine(progress));
}

}  // namespace trireme
