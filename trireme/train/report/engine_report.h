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

/// Reports an engine's steps: a log line (level info) every steps_per_print, a line of metrics in
/// monitor.metrics, and the results of tuning and exchange. Only rank 0 reports.
class EngineReport {
 public:
  EngineReport(const Config& config, const Run& run);
  /// Called after a checkpoint was loaded: metrics are appended.
  void resumed() { mode_ = MetricsMode::resume; }
  /// Every rank must call it after each step.
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
