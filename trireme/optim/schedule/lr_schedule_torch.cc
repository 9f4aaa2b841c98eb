// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/schedule/lr_schedule_torch.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/check.h"
#include "trireme/optim/schedule/torch_schedule_forms.h"

namespace trireme::detail {
namespace {

template <class T>
T required(const ScheduleOptions& o, const char* name, const std::optional<T>& value) {
  check<UsageError>(value.has_value(), "scheduler '{}' needs {}", o.type, name);
  return *value;
}

int64_t count(const ScheduleOptions& o, const char* name, int64_t value) {
  check<UsageError>(value >= 1, "scheduler '{}': {} is {}: it must be 1 or more", o.type, name,
                    value);
  return value;
}

double rate(const ScheduleOptions& o, const char* name, double value) {
  check<UsageError>(value >= 0 && std::isfinite(value),
                    "scheduler '{}': {} is {}: it must be a number, 0 or more", o.type, name,
                    value);
  return value;
}

TorchForm decays(const ScheduleOptions& o) {
  const double lr = o.lr;
  if (o.type == "ExponentialLR") {
    const double gamma = rate(o, "gamma", required(o, "gamma", o.gamma));
    return {{"gamma"}, [=](int64_t s) { return lr * std::pow(gamma, static_cast<double>(s)); }};
  }
  const double gamma = rate(o, "gamma", o.gamma.value_or(0.1));
  if (o.type == "StepLR") {
    const int64_t size = count(o, "step_size", required(o, "step_size", o.step_size));
    return {{"step_size", "gamma"},
            [=](int64_t s) { return lr * std::pow(gamma, static_cast<double>(s / size)); }};
  }
  const auto milestones = required(o, "milestones", o.milestones);
  check<UsageError>(std::is_sorted(milestones.begin(), milestones.end()),
                    "scheduler '{}': the milestones must increase", o.type);
  return {{"milestones", "gamma"}, [=](int64_t s) {
            const auto passed = std::upper_bound(milestones.begin(), milestones.end(), s);
            return lr * std::pow(gamma, static_cast<double>(passed - milestones.begin()));
          }};
}

TorchForm cosines(const ScheduleOptions& o) {
  const double lr = o.lr, eta_min = rate(o, "eta_min", o.eta_min.value_or(0));
  if (o.type == "CosineAnnealingLR") {
    const auto period = static_cast<double>(count(o, "T_max", required(o, "T_max", o.T_max)));
    return {{"T_max", "eta_min"}, [=](int64_t s) {
              return eta_min +
                     (lr - eta_min) *
                         (1 + std::cos(std::numbers::pi * static_cast<double>(s) / period)) / 2;
            }};
  }
  const lr_scheduler::WarmRestartsForm form{required(o, "T_0", o.T_0), o.T_mult.value_or(1),
                                            eta_min};
  form.check_options();
  return {{"T_0", "T_mult", "eta_min"}, [=](int64_t s) { return form.at(s, lr); }};
}

TorchForm one_cycle(const ScheduleOptions& o) {
  lr_scheduler::OneCycleForm form;
  const std::string strategy = o.anneal_strategy.value_or("cos");
  check<UsageError>(strategy == "cos" || strategy == "linear",
                    "scheduler '{}': anneal_strategy is '{}': use cos or linear", o.type, strategy);
  const double div = o.div_factor.value_or(25), final_div = o.final_div_factor.value_or(1e4);
  check<UsageError>(div > 0 && final_div > 0,
                    "scheduler '{}': div_factor ({}) and final_div_factor ({}) must be above 0",
                    o.type, div, final_div);
  form.high = rate(o, "max_lr", required(o, "max_lr", o.max_lr));
  form.low = form.high / div;
  form.end_low = form.low / final_div;
  form.total_steps = required(o, "total_steps", o.total_steps);
  form.pct_start = o.pct_start.value_or(0.3);
  form.cosine = strategy == "cos";
  form.three_phase = o.three_phase.value_or(false);
  form.check_options();
  return {{"max_lr", "total_steps", "pct_start", "anneal_strategy", "div_factor",
           "final_div_factor", "three_phase"},
          [=](int64_t s) { return form.at(s); }};
}

TorchForm cyclic(const ScheduleOptions& o) {
  const double low = rate(o, "base_lr", required(o, "base_lr", o.base_lr));
  const double high = rate(o, "max_lr", required(o, "max_lr", o.max_lr));
  const int64_t up = o.step_size_up.value_or(2000);
  lr_scheduler::CyclicForm form;
  form.step_size_up = static_cast<double>(up);
  form.step_size_down = static_cast<double>(o.step_size_down.value_or(up));
  form.mode = o.mode.value_or("triangular");
  form.gamma = rate(o, "gamma", o.gamma.value_or(1));
  form.check_options();
  return {{"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma"},
          [=](int64_t s) { return low + (high - low) * form.height(s) * form.scale(s); }};
}

}  // namespace

TorchForm torch_form(const ScheduleOptions& o) {
  if (o.type == "OneCycleLR") return one_cycle(o);
  if (o.type == "CyclicLR") return cyclic(o);
  return o.type.starts_with("Cosine") ? cosines(o) : decays(o);
}

}  // namespace trireme::detail
