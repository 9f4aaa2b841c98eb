// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/optim/loss_scale.h"

// What a run stores, computes and sends in which dtype: DeepSpeed's sections and Apex's presets as
// one plan. Values in, values out.
namespace trireme {

struct PrecisionPlan {
  std::string asked;                    // "bf16.enabled", "amp.opt_level O2": for messages
  at::ScalarType stored = at::kFloat;   // parameters and gradients
  at::ScalarType compute = at::kFloat;  // forward and backward; another than stored: emulated
  std::optional<at::ScalarType> autocast;
  bool masters = false;              // float32 copies that the optimizer steps on
  at::ScalarType wire = at::kFloat;  // gradients between ranks
  std::optional<LossScaleOptions> scale;

  bool emulated() const { return compute != stored; }
  /// float16 is on a gradient's way: its range asks for losses near one.
  bool narrow() const;
};

/// The configuration was checked: at most one of fp16, bf16, amp and torch_autocast is enabled.
TRIREME_API PrecisionPlan plan_precision(const Config& config);
/// "bfloat16 parameters, float32 masters"; "" for float32 throughout.
TRIREME_API std::string describe(const PrecisionPlan& plan);
/// UsageError, with the reason and the way out, for what this LibTorch cannot compute on the
/// device.
TRIREME_API void check_precision(const PrecisionPlan& plan, at::DeviceType device);

}  // namespace trireme
