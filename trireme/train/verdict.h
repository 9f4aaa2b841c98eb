// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/optim/clip.h"
#include "trireme/train/forward_backward.h"

// Is this step sound? Every rank comes to the same answer.
namespace trireme {

struct GlobalLoss {
  double sum = 0;
  int64_t weight = 0;
  int stop = 0;  // the largest that a rank asked with
  double mean() const { return sum / static_cast<double>(weight); }
};

/// One small collective. Throws NumericError on every rank, naming the first whose loss is not
/// finite.
GlobalLoss agree_on_loss(Run& run, const LossSum& mine, int stop_asked);
/// Throws NumericError naming the parameter. Gradients are the same on every rank here, so no
/// collective is needed.
GradNorm checked_norm(Run& run, double grad_scale);

}  // namespace trireme
