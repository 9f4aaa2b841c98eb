// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/config/config.h"
#include "trireme/monitor/metrics.h"
#include "trireme/train/run.h"
#include "trireme/train/step.h"

namespace trireme {

/// What an engine says of its steps: a line to the log (level info) every steps_per_print, a line
/// of metrics in monitor.metrics, what tuning and exchange have found. Rank 0 speaks.
class EngineReport {
 public:
  EngineReport(const Config& config, const Run& run);
  /// A checkpoint was loaded: metrics go on.
  void resumed() { mode_ = MetricsMode::resume; }
  /// Every rank, after each step.
  void step(const Run& run, const StepReport& report);

 private:
  void print(const Run& run, const StepReport& report) const;

  int64_t every_;
  std::string metrics_path_;
  RunStart start_;
  MetricsMode mode_ = MetricsMode::fresh;
  std::unique_ptr<MetricsFile> metrics_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace trireme
