// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/train/report/step_report.h"
#include "trireme/train/run.h"

namespace trireme {

/// Takes one optimizer step on every rank. If the loss or a gradient is not finite, throws
/// NumericError on all ranks, naming rank or parameter, and leaves the weights unchanged; with loss
/// scaling the step is skipped instead, until the scale reaches its floor. A nonzero `stop_asked`
/// means that this rank wants the run to end after this step.
TRIREME_API StepReport train_step(Run& run, int stop_asked = 0);
/// Takes a step with a batch that the caller provides.
StepReport train_on(Run& run, const Batch& batch, int stop_asked);
/// Completes a step after its last backward.
StepReport finish_step(Run& run);

}  // namespace trireme
