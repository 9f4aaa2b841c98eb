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
/// finite; with loss scaling such a step goes on to be left out.
GlobalLoss agree_on_loss(Run& run, const LossSum& mine, int stop_asked);
struct Verdict {
  GradNorm norm;  // of the mean gradient
  GradVerdict gradients;
  bool finite() const { return gradients.finite; }
};

/// Whether the step can be taken: the one place that asks. With loss scaling ranks agree (a
/// collective) and an overflow is a verdict; without, NumericError names the parameter on every
/// rank.
Verdict judge(Run& run, const GlobalLoss& loss, double grad_scale);

}  // namespace trireme
