// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/export.h"
#include "trireme/train/run.h"

namespace trireme {

struct StepReport {
  double loss = 0;       // mean over the global batch
  double grad_norm = 0;  // of the mean gradient, before clipping
  double lr = 0;
  int64_t weight = 0;   // samples or tokens of the global batch
  int64_t samples = 0;  // of the global batch
  int stop = 0;  // not 0: a rank was asked to stop; the largest of what they said, the same on all
  double loss_scale = 0;  // of this step; 0: there is none
  bool skipped = false;   // an overflow: weights and optimizer state are as before
};

/// One optimizer step on every rank. Throws NumericError on all ranks, naming rank or parameter,
/// where the loss or a gradient is not a finite number; weights are those of the step before then.
/// With loss scaling such a step is left out instead, until the scale is at its floor.
/// `stop_asked`, not 0: this rank wants the run to end after this step.
TRIREME_API StepReport train_step(Run& run, int stop_asked = 0);
/// What comes behind the last backward of a step.
StepReport finish_step(Run& run);

}  // namespace trireme
