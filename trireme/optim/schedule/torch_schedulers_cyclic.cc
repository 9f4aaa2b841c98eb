// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/optim/schedule/torch_schedulers.h"

// Schedules whose rates are functions of the step.
namespace trireme::lr_scheduler {
namespace {

std::vector<double> for_groups(const char* type, const char* name, const ParamGroups& groups,
                               const std::vector<double>& values) {
  if (values.size() == 1) return std::vector<double>(groups.size(), values[0]);
  check<UsageError>(values.size() == groups.size(),
                    "{}: {} has {} values: give one, or one for each of {} parameter groups", type,
                    name, values.size(), groups.size());
  return values;
}

void check_momentum(const char* type, const ParamGroups& groups) {
  check<UsageError>(groups.has_momentum(),
                    "{}: the optimizer has no momentum to cycle: set cycle_momentum to false",
                    type);
}

int64_t total_steps_of(const OneCycleLROptions& o) {
  if (o.total_steps != 0) return o.total_steps;
  check<UsageError>(o.epochs >= 1 && o.steps_per_epoch >= 1,
                    "OneCycleLR: give total_steps, or epochs and steps_per_epoch, 1 or more");
  return o.epochs * o.steps_per_epoch;
}

ParamGroups with_initial(ParamGroups groups, const OneCycleLROptions& o) {
  std::vector<double> initial = for_groups("OneCycleLR", "max_lr", groups, o.max_lr);
  for (double& lr : initial) lr /= o.div_factor;
  groups.set_initial_lr(initial);
  return groups;
}

ParamGroups with_base(ParamGroups groups, const CyclicLROptions& o) {
  const std::vector<double> base = for_groups("CyclicLR", "base_lr", groups, o.base_lr);
  for (size_t i = 0; i < base.size(); ++i) groups.set_lr(i, base[i]);
  return groups;
}

}  // namespace

OneCycleLR::OneCycleLR(ParamGroups groups, const OneCycleLROptions& o)
    : Scheduler("OneCycleLR", with_initial(std::move(groups), o)) {
  check<UsageError>(o.anneal_strategy == "cos" || o.anneal_strategy == "linear",
                    "OneCycleLR: anneal_strategy is '{}': use cos or linear", o.anneal_strategy);
  check<UsageError>(o.div_factor > 0 && o.final_div_factor > 0,
                    "OneCycleLR: div_factor ({}) and final_div_factor ({}) must be above 0",
                    o.div_factor, o.final_div_factor);
  OneCycleForm form;
  form.total_steps = total_steps_of(o);
  form.pct_start = o.pct_start;
  form.cosine = o.anneal_strategy == "cos";
  form.three_phase = o.three_phase;
  form.check_options();
  const auto peaks = for_groups("OneCycleLR", "max_lr", groups_, o.max_lr);
  for (size_t i = 0; i < peaks.size(); ++i) {
    form.low = base_lrs_[i];
    form.high = peaks[i];
    form.end_low = form.low / o.final_div_factor;
    rates_.push_back(form);
  }
  if (o.cycle_momentum) {
    check_momentum("OneCycleLR", groups_);
    const auto least = for_groups("OneCycleLR", "base_momentum", groups_, o.base_momentum);
    const auto most = for_groups("OneCycleLR", "max_momentum", groups_, o.max_momentum);
    for (size_t i = 0; i < least.size(); ++i) {
      form.low = form.end_low = most[i];
      form.high = least[i];
      momentums_.push_back(form);
    }
  }
  begin();
}

std::vector<double> OneCycleLR::next_rates() {
  std::vector<double> rates;
  for (const OneCycleForm& form : rates_) rates.push_back(form.at(last_epoch_));
  loaded();
  return rates;
}

void OneCycleLR::loaded() {
  for (size_t i = 0; i < momentums_.size(); ++i)
    groups_.set_momentum(i, momentums_[i].at(last_epoch_));
}

CyclicLR::CyclicLR(ParamGroups groups, const CyclicLROptions& o)
    : Scheduler("CyclicLR", with_base(std::move(groups), o)),
      scale_fn_(o.scale_fn),
      by_cycle_(o.scale_mode == "cycle"),
      cycle_momentum_(o.cycle_momentum),
      max_lrs_(for_groups("CyclicLR", "max_lr", groups_, o.max_lr)) {
  check<UsageError>(o.scale_mode == "cycle" || o.scale_mode == "iterations",
                    "CyclicLR: scale_mode is '{}': use cycle or iterations", o.scale_mode);
  form_.step_size_up = static_cast<double>(o.step_size_up);
  form_.step_size_down =
      static_cast<double>(o.step_size_down == 0 ? o.step_size_up : o.step_size_down);
  form_.mode = scale_fn_ ? "triangular" : o.mode;
  form_.gamma = o.gamma;
  form_.check_options();
  if (cycle_momentum_) {
    check_momentum("CyclicLR", groups_);
    base_momentums_ = for_groups("CyclicLR", "base_momentum", groups_, o.base_momentum);
    max_momentums_ = for_groups("CyclicLR", "max_momentum", groups_, o.max_momentum);
  }
  begin();
  base_lrs_ = for_groups("CyclicLR", "base_lr", groups_, o.base_lr);
}

double CyclicLR::scale() const {
  if (!scale_fn_) return form_.scale(last_epoch_);
  return scale_fn_(by_cycle_ ? form_.cycle(last_epoch_) : static_cast<double>(last_epoch_));
}

std::vector<double> CyclicLR::next_rates() {
  const double height = form_.height(last_epoch_);
  std::vector<double> rates;
  for (size_t i = 0; i < base_lrs_.size(); ++i)
    rates.push_back(base_lrs_[i] + (max_lrs_[i] - base_lrs_[i]) * height * scale());
  loaded();
  return rates;
}

void CyclicLR::loaded() {
  const double height = form_.height(last_epoch_);
  for (size_t i = 0; i < base_momentums_.size(); ++i)
    groups_.set_momentum(
        i, max_momentums_[i] - (max_momentums_[i] - base_momentums_[i]) * height * scale());
}

}  // namespace trireme::lr_scheduler
