// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/optim/clip.h"
#include "trireme/train/forward_backward.h"
#include "trireme/train/model_axes/tally.h"

// Decides whether a step is valid. Every rank comes to the same result.
namespace trireme {

struct GlobalLoss {
  double sum = 0;
  int64_t weight = 0;
  double gradient_weight = 0;  // of the samples that this rank's gradients are sums over
  int stop = 0;                // the largest stop request of any rank
  int not_finite = -1;         // the first rank whose loss is not finite; -1: none
  double mean() const { return sum / static_cast<double>(weight); }
};

/// What the round that was just closed tells this rank, agreed on by all ranks of the mesh. Every
/// rank must call it, once a step.
StepFacts facts_of_step(const Run& run);
/// Returns what ranks reported with their gradients. Throws NumericError on every rank, naming the
/// first whose loss is not finite; with loss scaling such a step continues and is skipped.
GlobalLoss global_loss(const Run& run, const StepFacts& facts);
struct Verdict {
  GradNorm norm;  // of the mean gradient
  GradVerdict gradients;
  bool finite() const { return gradients.finite; }
};

/// Decides whether the step can be taken; nothing else does. With loss scaling an overflow is a
/// verdict; without, NumericError on every rank names rank and parameter. clip_norm 0: no clipping
/// is left to do.
Verdict judge(Run& run, const StepFacts& facts, const GlobalLoss& loss, double grad_scale,
              double clip_norm);

}  // namespace trireme
