// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/optim/loss_scale.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

// Loss scaling for float16: torch.amp.GradScaler and DeepSpeed's fp16 section, with one decision
// for all ranks.
namespace trireme {

/// The decision that all ranks of the group reached.
struct GradVerdict {
  bool finite = true;
  /// The lowest rank that saw a NaN or an infinity, or -1. After a reduction all ranks see it, so
  /// it is 0.
  int rank = -1;
  std::string parameter;  // its first such parameter; names beyond 255 bytes are cut
};

///   scaler.scale(loss).backward();                             // gradients are scaled up
///   GradVerdict verdict = scaler.check(parameters);            // collective
///   if (verdict.finite) optimizer.step(lr, scaler.inverse());  // and down as they are read
///   scaler.update(verdict);
///
/// With a torch::optim optimizer: unscale_() instead of check(), then step(). Ranks make the same
/// calls in the same order; check() and unscale_() are collective. Use from one thread.
class TRIREME_API GradScaler {
 public:
  /// Without a group, a rank decides for itself. Throws UsageError for options out of range.
  explicit GradScaler(LossScaleOptions options = {}, Group group = {});

  double scale() const { return state_.scale; }
  double inverse() const { return 1 / state_.scale; }
  const LossScaleState& state() const { return state_; }
  int64_t steps() const { return steps_; }

  /// The loss times scale(); a half-precision loss is converted to float32 first, which can hold
  /// the product.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Checks each p.grad() (dense or sparse; an undefined one counts as finite) and combines the
  /// result over ranks.
  GradVerdict check(const NamedTensors& parameters);
  /// The same for a caller that has checked already; `not_finite` is the name of its first
  /// parameter that is not finite, or "".
  GradVerdict decide(const std::string& not_finite);
  /// check(); then, if everything is finite, multiplies gradients by inverse() in place.
  GradVerdict unscale_(const NamedTensors& parameters);
  /// Call it once per step, last. If the scale cannot be lowered further, throws NumericError on
  /// all ranks, naming rank, parameter and step; the scaler is then unchanged.
  LossScaleMove update(const GradVerdict& verdict);

  /// "scaler.scale", "scaler.good_steps", "scaler.hysteresis", "scaler.skipped", "scaler.steps".
  /// Throws Corrupt if loaded values are impossible; the scaler is then unchanged.
  void state(StateVisitor& visitor);

 private:
  LossScaleOptions options_;
  LossScaleState state_;
  int64_t steps_ = 0;  // updates, including skipped steps
  Group group_;
};

}  // namespace trireme
