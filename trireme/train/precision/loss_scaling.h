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

/// What a loss is multiplied with before backward and gradients are divided by in the optimizer's
/// pass, and what becomes of a step whose gradients are not finite. Ranks make the same calls with
/// the same verdicts.
///
/// Beside the loss scale a constant 1/nominal is in the factor: the power of two nearest to a
/// step's samples or tokens. So a scale means what it means in DeepSpeed and Apex, whose loss is a
/// mean, although ours is a sum; multiplying with it rounds nothing.
class TRIREME_API LossScaling {
 public:
  LossScaling() = default;
  virtual ~LossScaling();
  LossScaling(const LossScaling&) = delete;

  virtual at::Tensor scale(const at::Tensor& loss_sum) const = 0;
  /// 1 ÷ the factor of scale().
  virtual double inverse() const = 0;
  /// For people; 0: there is none.
  virtual double loss_scale() const { return 0; }
  /// A step that is not finite is left out; else it ends the run.
  virtual bool skips() const = 0;
  /// Last in a step. Throws NumericError on all ranks alike where nothing is left to try.
  virtual void update(const GradVerdict&) {}
  /// Steps left out since the run began: the learning rate's schedule does not count them.
  virtual int64_t skipped() const { return 0; }
  virtual void state(StateVisitor&) {}
};

/// No loss scale; 1/nominal alone.
TRIREME_API std::unique_ptr<LossScaling> no_loss_scaling(double nominal = 1);
/// GradScaler's. State: the scaler's and "scaler.skipped_steps".
TRIREME_API std::unique_ptr<LossScaling> grad_scaler_scaling(const LossScaleOptions& options,
                                                             Group group, double nominal = 1);

/// The power of two nearest to a step's weight.
TRIREME_API double nominal_weight(int64_t samples_or_tokens);

}  // namespace trireme
