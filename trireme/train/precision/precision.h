// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/optim/loss_scale.h"

// The dtypes in which a run stores, computes and communicates: one plan for DeepSpeed's sections
// and Apex's presets. Pure functions.
namespace trireme {

struct PrecisionPlan {
  std::string asked;                    // "bf16.enabled", "amp.opt_level O2": for messages
  at::ScalarType stored = at::kFloat;   // parameters and gradients
  at::ScalarType compute = at::kFloat;  // forward and backward; emulated if it differs from stored
  std::optional<at::ScalarType> autocast;
  bool masters = false;              // float32 copies that the optimizer steps on
  at::ScalarType wire = at::kFloat;  // gradients between ranks
  std::optional<LossScaleOptions> scale;

  bool emulated() const { return compute != stored; }
  /// Whether gradients pass through float16, whose range needs losses near one.
  bool narrow() const;
};

/// Makes the plan of a checked configuration: at most one of fp16, bf16, amp and torch_autocast is
/// enabled.
TRIREME_API PrecisionPlan plan_precision(const Config& config);
/// Returns "bfloat16 parameters, float32 masters", or "" for float32 throughout.
TRIREME_API std::string describe(const PrecisionPlan& plan);
/// Throws UsageError, with the reason and what to do, if this LibTorch cannot run the plan on the
/// device. Tries there what it needs.
TRIREME_API void check_precision(const PrecisionPlan& plan, at::Device device);

}  // namespace trireme
