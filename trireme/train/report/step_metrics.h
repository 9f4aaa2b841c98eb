// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/monitor/metrics.h"
#include "trireme/train/run.h"
#include "trireme/train/step.h"

namespace trireme {

/// Returns the metrics of a completed step; `more` are placed first after the fixed ones.
StepMetrics step_metrics(const Run& run, const StepReport& report, double seconds,
                         std::vector<std::pair<std::string, double>> more = {});

/// Returns what changed during the last step, one line each. Every rank must call it, once per
/// step.
std::vector<std::string> news_of(const Run& run);

}  // namespace trireme
