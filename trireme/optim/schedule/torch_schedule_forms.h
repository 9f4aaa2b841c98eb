// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "trireme/base/check.h"

// The schedules of torch.optim.lr_scheduler that are functions of the step, shared by lr_schedule.h
// and torch_schedulers.h. Expressions are written as in torch, to get the same bits.
namespace trireme::lr_scheduler {

struct WarmRestartsForm {
  int64_t T_0 = 1, T_mult = 1;
  double eta_min = 0;

  void check_options() const {
    check<UsageError>(T_0 >= 1, "CosineAnnealingWarmRestarts: T_0 is {}: it must be 1 or more",
                      T_0);
    check<UsageError>(T_mult >= 1,
                      "CosineAnnealingWarmRestarts: T_mult is {}: it must be 1 or more", T_mult);
  }
  double at(int64_t step, double base) const {
    int64_t begin = 0, length = T_0;
    if (T_mult == 1) {
      begin = step / T_0 * T_0;
    } else {
      while (step - begin >= length) {
        begin += length;
        length *= T_mult;
      }
    }
    return eta_min + (base - eta_min) *
                         (1 + std::cos(std::numbers::pi * static_cast<double>(step - begin) /
                                       static_cast<double>(length))) /
                         2;
  }
};

/// From low to high and back; rates start and end at different values (end_low); momentum uses the
/// same form with high and low exchanged.
struct OneCycleForm {
  double low = 0, high = 0, end_low = 0;
  int64_t total_steps = 1;
  double pct_start = 0.3;
  bool cosine = true, three_phase = false;

  void check_options() const {
    check<UsageError>(total_steps >= 1, "OneCycleLR: total_steps is {}: it must be 1 or more",
                      total_steps);
    check<UsageError>(pct_start >= 0 && pct_start <= 1,
                      "OneCycleLR: pct_start is {}: it must be in [0, 1]", pct_start);
  }
  double at(int64_t step) const {
    check<UsageError>(step <= total_steps,
                      "OneCycleLR: step {} of {}: the schedule ends there, make total_steps larger",
                      step + 1, total_steps);
    const double total = static_cast<double>(total_steps), s = static_cast<double>(step);
    const double up_end = pct_start * total - 1;
    if (s <= up_end) return between(low, high, s, 0, up_end);
    if (!three_phase) return between(high, end_low, s, up_end, total - 1);
    const double down_end = 2 * pct_start * total - 2;
    if (s <= down_end) return between(high, low, s, up_end, down_end);
    return between(low, end_low, s, down_end, total - 1);
  }

 private:
  double between(double from, double to, double step, double begin, double end) const {
    check<UsageError>(end != begin,
                      "OneCycleLR: with total_steps {} and pct_start {} a phase has no length: "
                      "choose another pct_start",
                      total_steps, pct_start);
    const double part = (step - begin) / (end - begin);
    if (!cosine) return (to - from) * part + from;
    return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * part) + 1);
  }
};

struct CyclicForm {
  double step_size_up = 2000, step_size_down = 2000;
  std::string mode = "triangular";
  double gamma = 1;

  void check_options() const {
    check<UsageError>(step_size_up >= 1 && step_size_down >= 1,
                      "CyclicLR: step_size_up is {} and step_size_down {}: both must be 1 or more",
                      step_size_up, step_size_down);
    check<UsageError>(
        mode == "triangular" || mode == "triangular2" || mode == "exp_range",
        "CyclicLR: mode is '{}': use triangular, triangular2 or exp_range, or give a scale_fn",
        mode);
  }
  double cycle(int64_t step) const {
    return std::floor(1 + static_cast<double>(step) / (step_size_up + step_size_down));
  }
  /// Rises from 0 to 1 over step_size_up, then falls back.
  double height(int64_t step) const {
    const double total = step_size_up + step_size_down, ratio = step_size_up / total;
    const double x = 1. + static_cast<double>(step) / total - cycle(step);
    return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  }
  double scale(int64_t step) const {
    if (mode == "triangular2") return 1 / std::pow(2., cycle(step) - 1);
    if (mode == "exp_range") return std::pow(gamma, static_cast<double>(step));
    return 1;
  }
};

}  // namespace trireme::lr_scheduler
