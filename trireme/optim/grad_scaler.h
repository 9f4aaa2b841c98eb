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

/// What all ranks of the group agreed on.
struct GradVerdict {
  bool finite = true;
  int rank = -1;          // the lowest that saw a NaN or an infinity (after a reduction all do: 0)
  std::string parameter;  // its first such parameter; names beyond 255 bytes are cut
};

///   scaler.scale(loss).backward();                     // the scale goes up into the gradients
///   GradVerdict verdict = scaler.check(parameters);    // collective
///   if (verdict.finite) optimizer.step(lr, scaler.inverse());  // and down, in the optimizer's
///   pass scaler.update(verdict);
///
/// With a torch::optim optimizer: unscale_() instead of check(), then step(). Ranks make the same
/// calls in the same order; check() and unscale_() are collective. One thread uses it.
class TRIREME_API GradScaler {
 public:
  /// Without a group a rank decides for itself. Throws UsageError for options that make no sense.
  explicit GradScaler(LossScaleOptions options = {}, Group group = {});

  double scale() const { return state_.scale; }
  double inverse() const { return 1 / state_.scale; }
  const LossScaleState& state() const { return state_; }
  int64_t steps() const { return steps_; }

  /// The loss times scale(); a half loss becomes float32 first, which holds the product.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Looks at each p.grad() (dense or sparse; none counts as finite) and asks the others.
  GradVerdict check(const NamedTensors& parameters);
  /// The same for who has looked already: its first parameter that is not finite, or "".
  GradVerdict decide(const std::string& not_finite);
  /// check(), then, where all is finite, gradients times inverse(), in place.
  GradVerdict unscale_(const NamedTensors& parameters);
  /// Once a step, last. Throws NumericError, naming rank, parameter and step, on all ranks alike,
  /// when the scale is at its floor; the scaler is then as before.
  LossScaleMove update(const GradVerdict& verdict);

  /// "scaler.scale", "scaler.good_steps", "scaler.hysteresis", "scaler.skipped", "scaler.steps".
  /// Throws Corrupt for loaded values that cannot be; the scaler is then as before.
  void state(StateVisitor& visitor);

 private:
  LossScaleOptions options_;
  LossScaleState state_;
  int64_t steps_ = 0;  // updates, skipped steps among them
  Group group_;
};

}  // namespace trireme
