// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/optim/grad_scaler.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// Scales the loss before backward and gives the inverse for the optimizer's pass, and decides what
/// happens to a step whose gradients are not finite. Ranks must make the same calls with the same
/// verdicts.
///
/// Besides the loss scale, the factor contains a constant 1/nominal: the power of two nearest to a
/// step's samples or tokens. A scale therefore means the same as in DeepSpeed and Apex, whose loss
/// is a mean, although ours is a sum; the multiplication rounds nothing.
class TRIREME_API LossScaling {
 public:
  LossScaling() = default;
  virtual ~LossScaling();
  LossScaling(const LossScaling&) = delete;

  virtual at::Tensor scale(const at::Tensor& loss_sum) const = 0;
  /// 1 ÷ the factor of scale().
  virtual double inverse() const = 0;
  /// The loss scale, for reports; 0 without one.
  virtual double loss_scale() const { return 0; }
  /// Whether a step that is not finite is skipped; otherwise it ends the run.
  virtual bool skips() const = 0;
  /// Called last in a step. Throws NumericError on all ranks when the scale cannot be lowered
  /// further.
  virtual void update(const GradVerdict&) {}
  /// Steps skipped since the run began; the learning-rate schedule does not count them.
  virtual int64_t skipped() const { return 0; }
  virtual void state(StateVisitor&) {}
};

/// Scales by 1/nominal alone.
TRIREME_API std::unique_ptr<LossScaling> no_loss_scaling(double nominal = 1);
/// Uses GradScaler. State: the scaler's and "scaler.skipped_steps".
TRIREME_API std::unique_ptr<LossScaling> grad_scaler_scaling(const LossScaleOptions& options,
                                                             Group group, double nominal = 1);

/// Returns the power of two nearest to a step's weight.
TRIREME_API double nominal_weight(int64_t samples_or_tokens);

}  // namespace trireme
