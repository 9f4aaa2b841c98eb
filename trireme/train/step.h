// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/train/report/step_report.h"
#include "trireme/train/run.h"

namespace trireme {

/// One optimizer step on every rank. Throws NumericError on all ranks, naming rank or parameter,
/// where the loss or a gradient is not a finite number; weights are those of the step before then.
/// With loss scaling such a step is left out instead, until the scale is at its floor.
/// `stop_asked`, not 0: this rank wants the run to end after this step.
TRIREME_API StepReport train_step(Run& run, int stop_asked = 0);
/// The same, with a batch that the caller brings.
StepReport train_on(Run& run, const Batch& batch, int stop_asked);
/// What comes behind the last backward of a step.
StepReport finish_step(Run& run);

}  // namespace trireme
