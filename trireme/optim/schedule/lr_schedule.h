// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// The learning rate as a pure function of the step. (For schedules that set the rates of an
// optimizer's groups in your own loop, see optim/schedule/torch_schedulers.h.)
namespace trireme {

/// Keys use DeepSpeed's names, except those of torch's schedules, which use torch's. Keys that a
/// type does not use must be unset: a key without effect is a UsageError.
struct ScheduleOptions {
  /// Ours: "constant", "linear", "cosine", "polynomial", "inverse_sqrt", "WSD". DeepSpeed's:
  /// "WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest". torch's: "StepLR",
  /// "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
  /// "OneCycleLR", "CyclicLR".
  std::string type = "constant";
  double lr = 1e-3;  // the optimizer's
  double scale = 1;  // multiplied into the resulting rate: large_batch_scale()

  std::optional<int64_t> warmup_num_steps = {};  // ours: 0; DeepSpeed's: 1000, and at least 2
  /// Required by linear, cosine, polynomial, WSD, WarmupDecayLR and WarmupCosineLR.
  std::optional<int64_t> total_num_steps = {};
  /// Ours except constant: the lowest rate, as a fraction of lr; 0.
  std::optional<double> min_ratio = {};
  std::optional<double> power = {};             // polynomial: 1
  std::optional<int64_t> decay_num_steps = {};  // WSD, required: the last steps, which decay
  /// WSD: "linear" (default), "cosine", "exponential", "minus_sqrt".
  std::optional<std::string> decay_type = {};

  std::optional<std::string> warmup_type = {};  // DeepSpeed's: "log" (default) or "linear"
  std::optional<double> warmup_min_lr = {};     // WarmupLR, WarmupDecayLR: 0
  std::optional<double> warmup_max_lr = {};     // WarmupLR: lr; WarmupDecayLR: 0.001
  std::optional<double> warmup_min_ratio = {};  // WarmupCosineLR: 0
  std::optional<double> cos_min_ratio = {};     // WarmupCosineLR: 0.0001

  std::optional<double> cycle_min_lr = {};             // OneCycle, required
  std::optional<double> cycle_max_lr = {};             // OneCycle, required
  std::optional<double> decay_lr_rate = {};            // OneCycle: 0
  std::optional<int64_t> cycle_first_step_size = {};   // OneCycle: 2000
  std::optional<int64_t> cycle_second_step_size = {};  // OneCycle: the first
  std::optional<int64_t> decay_step_size = {};         // OneCycle: 0, no decay

  std::optional<double> lr_range_test_min_lr = {};      // 0.001
  std::optional<int64_t> lr_range_test_step_size = {};  // 2000
  std::optional<double> lr_range_test_step_rate = {};   // 1
  std::optional<bool> lr_range_test_staircase = {};     // false

  std::optional<int64_t> step_size = {};                // StepLR, required
  std::optional<std::vector<int64_t>> milestones = {};  // MultiStepLR, required
  /// StepLR, MultiStepLR: 0.1; ExponentialLR: required; CyclicLR: 1.
  std::optional<double> gamma = {};
  std::optional<int64_t> T_max = {};                // CosineAnnealingLR, required
  std::optional<int64_t> T_0 = {};                  // CosineAnnealingWarmRestarts, required
  std::optional<int64_t> T_mult = {};               // CosineAnnealingWarmRestarts: 1
  std::optional<double> eta_min = {};               // both: 0
  std::optional<double> max_lr = {};                // OneCycleLR, CyclicLR, required
  std::optional<int64_t> total_steps = {};          // OneCycleLR, required
  std::optional<double> pct_start = {};             // OneCycleLR: 0.3
  std::optional<std::string> anneal_strategy = {};  // OneCycleLR: "cos" (default) or "linear"
  std::optional<double> div_factor = {};            // OneCycleLR: 25
  std::optional<double> final_div_factor = {};      // OneCycleLR: 10000
  std::optional<bool> three_phase = {};             // OneCycleLR: false
  std::optional<double> base_lr = {};               // CyclicLR, required
  std::optional<int64_t> step_size_up = {};         // CyclicLR: 2000
  std::optional<int64_t> step_size_down = {};       // CyclicLR: as up
  /// CyclicLR: "triangular" (default), "triangular2", "exp_range".
  std::optional<std::string> mode = {};
};

/// An immutable value; lr_at() may be called from any thread, in any order.
///
/// Ours, with s = step, w = warmup_num_steps, n = total_num_steps, r = min_ratio:
///   s < w: lr (s+1)/w, so that no step is wasted at rate 0; then constant: lr; with x = min(1,
///   (s-w)/(n-w)), linear: lr (1 - (1-r) x); cosine: lr (r + (1-r) (1 + cos πx)/2); polynomial: lr
///   (r + (1-r) (1-x)^power); inverse_sqrt: lr max(r, sqrt(max(1,w)/(s+1))); WSD: lr until n -
///   decay_num_steps, then lr (r + (1-r) f(y)), y running from 0 to 1 over the decay, f(y) = 1-y,
///   (1 + cos πy)/2, 2·0.5^y - 1 or 1 - sqrt(y).
///
/// DeepSpeed's schedules advance after the optimizer, so step s uses the formula at t = s-1, and
/// the first step uses the start value (warmup_min_lr; 0 for WarmupCosineLR); w is at least 2:
///   t < w: γ = log(t+1)/log(w), or t/w for "linear"; WarmupLR then stays at γ = 1; WarmupDecayLR:
///   γ = max(0, (n-t)/max(1, n-w)); both: min_lr + (max_lr - min_lr) γ. WarmupCosineLR: lr times
///   m + (1-m) γ in warm-up, then c + (1-c) (1 + cos(π min(1, (t-w+1)/max(1, n-w))))/2.
///   LRRangeTest: min_lr (1 + step_rate k), k = s/step_size, floored under staircase. OneCycle: up
///   from cycle_min_lr to cycle_max_lr over the first step size and back over the second; from
///   step a+b+1 on cycle_min_lr / (1 + decay_lr_rate (s-a-b)/decay_step_size). Momentum stays.
///
/// torch's are those of torch.optim.lr_scheduler with schedule.step() after each optimizer step, in
/// their closed forms: within 1e-12 of torch's recursions. Momentum is not cycled.
class TRIREME_API LRScheduler {
 public:
  /// Throws UsageError for an unknown type, or a missing, unused or impossible option.
  explicit LRScheduler(const ScheduleOptions& options);
  /// The rate for optimizer step `step`, counted from 0.
  double lr_at(int64_t step) const;

 private:
  enum class Kind {
    kConstant,
    kLinear,
    kCosine,
    kPolynomial,
    kInverseSqrt,
    kWsd,
    kWarmup,
    kWarmupDecay,
    kWarmupCosine,
    kOneCycle,
    kRangeTest,
    kTorch
  };
  enum class Decay { kLinear, kCosine, kExponential, kMinusSqrt };
  void take_ours(const ScheduleOptions& o);
  void take_warmups(const ScheduleOptions& o);
  void take_one_cycle(const ScheduleOptions& o);
  void take_range_test(const ScheduleOptions& o);
  void take_torch(const ScheduleOptions& o);
  void take_total(const ScheduleOptions& o, bool after_warmup);
  double ours(int64_t step) const;
  double after_warmup(int64_t step) const;
  double warmups(int64_t iteration) const;
  double one_cycle(int64_t step) const;
  double range_test(int64_t step) const;
  double warmup_gamma(int64_t iteration) const;

  Kind kind_;
  double scale_ = 1;
  double low_ = 0, high_ = 0;  // rates at γ = 0 and γ = 1
  double end_ratio_ = 0;
  int64_t warmup_ = 0, total_ = 0;
  bool log_ = true;
  double power_ = 1;
  Decay decay_ = Decay::kLinear;
  int64_t decay_steps_ = 0;         // WSD: length of the decay; OneCycle: decay_step_size
  double rate_ = 0;                 // OneCycle: decay_lr_rate; LRRangeTest: step_rate
  int64_t first_ = 0, second_ = 0;  // step sizes
  bool staircase_ = false;
  std::function<double(int64_t)> torch_;  // for torch's types
};

/// The factor for a learning rate that was tuned for `base_batch` samples per step when a step has
/// `batch` samples: "none" 1, "linear" batch/base (Goyal et al. 2017, SGD), "sqrt" its root (LAMB,
/// Adam).
TRIREME_API double large_batch_scale(const std::string& rule, int64_t batch, int64_t base_batch);

}  // namespace trireme
