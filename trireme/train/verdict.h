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
  double gradient_weight = 0;  // of what this rank's gradients are sums over: all of it, or less
  int stop = 0;                // the largest that a rank asked with
  int not_finite = -1;         // the lowest rank whose loss is not
  double mean() const { return sum / static_cast<double>(weight); }
};

/// What ranks told with their gradients. Throws NumericError on every rank, naming the first whose
/// loss is not finite; with loss scaling such a step goes on to be left out.
GlobalLoss global_loss(const Run& run);
struct Verdict {
  GradNorm norm;  // of the mean gradient
  GradVerdict gradients;
  bool finite() const { return gradients.finite; }
};

/// Whether the step can be taken: the one place that asks. Ranks know already who brought what
/// (the round's record), so no collective is needed. With loss scaling an overflow is a verdict;
/// without, NumericError on every rank names rank and parameter. clip_norm 0: nothing to clip any
/// more.
Verdict judge(Run& run, const GlobalLoss& loss, double grad_scale, double clip_norm);

}  // namespace trireme
