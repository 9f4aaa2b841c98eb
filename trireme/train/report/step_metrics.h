// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/monitor/metrics.h"
#include "trireme/train/run.h"
#include "trireme/train/step.h"

namespace trireme {

/// A step that is done as a line of metrics; `more` are its first numbers behind the fixed ones.
StepMetrics step_metrics(const Run& run, const StepReport& report, double seconds,
                         std::vector<std::pair<std::string, double>> more = {});

/// What has changed by itself in the step that is done, a line each. Every rank calls it, once a
/// step.
std::vector<std::string> news_of(const Run& run);

}  // namespace trireme
