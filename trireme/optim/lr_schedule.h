// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/export.h"

// Learning rate as a pure function of the step.
namespace trireme {

/// Keys bear DeepSpeed's names. What a type does not use must stay unset: a set key without effect
/// is a UsageError.
struct ScheduleOptions {
  /// Ours: "constant", "linear", "cosine". DeepSpeed's: "WarmupLR", "WarmupDecayLR",
  /// "WarmupCosineLR".
  std::string type = "constant";
  double lr = 1e-3;  // the optimizer's

  std::optional<int64_t> warmup_num_steps = {};  // ours: 0; DeepSpeed's: 1000, and at least 2
  std::optional<int64_t> total_num_steps = {};   // required but for constant and WarmupLR
  std::optional<double> min_ratio = {};  // linear, cosine: the last rate, as a part of lr; 0

  std::optional<std::string> warmup_type = {};  // DeepSpeed's: "log" (default) or "linear"
  std::optional<double> warmup_min_lr = {};     // WarmupLR, WarmupDecayLR: 0
  std::optional<double> warmup_max_lr = {};     // WarmupLR: lr; WarmupDecayLR: 0.001
  std::optional<double> warmup_min_ratio = {};  // WarmupCosineLR: 0
  std::optional<double> cos_min_ratio = {};     // WarmupCosineLR: 0.0001
};

/// A value; lr_at() may be called from anywhere, in any order.
///
/// Ours, with s = step, w = warmup_num_steps, n = total_num_steps, r = min_ratio:
///   s < w: lr (s+1)/w, so that no step is lost at 0; then constant: lr; with x = min(1,
///   (s-w)/(n-w)), linear: lr (1 - (1-r) x); cosine: lr (r + (1-r) (1 + cos πx)/2).
///
/// DeepSpeed's advance after the optimizer, so that its step s uses the formula at t = s-1 and the
/// first step the start value (warmup_min_lr; 0 for WarmupCosineLR); w is at least 2:
///   t < w: γ = log(t+1)/log(w), or t/w for "linear"; WarmupLR then stays at γ = 1; WarmupDecayLR:
///   γ = max(0, (n-t)/max(1, n-w)); both: min_lr + (max_lr - min_lr) γ. WarmupCosineLR: lr times
///   m + (1-m) γ in warm-up, then c + (1-c) (1 + cos(π min(1, (t-w+1)/max(1, n-w))))/2.
class TRIREME_API LRScheduler {
 public:
  /// Throws UsageError for an unknown type, a missing, unused or impossible option.
  explicit LRScheduler(const ScheduleOptions& options);
  /// The rate of optimizer step `step`, counted from 0.
  double lr_at(int64_t step) const;

 private:
  enum class Kind { kConstant, kLinear, kCosine, kWarmup, kWarmupDecay, kWarmupCosine };
  double ours(int64_t step) const;
  double deepspeed(int64_t iteration) const;
  double warmup_gamma(int64_t iteration) const;

  Kind kind_;
  double low_ = 0, high_ = 0;  // rates that γ = 0 and γ = 1 give
  double end_ratio_ = 0;
  int64_t warmup_ = 0, total_ = 0;
  bool log_ = true;
};

}  // namespace trireme
