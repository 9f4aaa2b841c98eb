// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/monitor/metrics.h"
#include "trireme/monitor/progress.h"
#include "trireme/monitor/span_sink.h"
#include "trireme/train/program/trainer_impl.h"
#include "trireme/train/report/use_of_ranks.h"

namespace trireme {

/// What rank 0 shows and writes about a run. Other ranks only tell it what they use of their
/// machines: every rank must call step() and done().
class RunReport {
 public:
  RunReport(const Trainer::Impl& trainer, const TrainOptions& options);

  void step(double seconds, const StepTimes& times);
  /// Shows a line to the user.
  void note(const std::string& text);
  void held_out(const Evaluation& e);
  void held_out(const std::vector<HeldOutSums::Sum>& sums);
  void done();

 private:
  const Trainer::Impl& trainer_;
  const TrainOptions& options_;
  const bool speaks_;
  UseOfRanks use_;
  std::vector<std::unique_ptr<MetricsFile>> metrics_;
  std::unique_ptr<Progress> progress_;
  std::map<std::string, double> totals_;  // seconds by category
  double seconds_ = 0;
};

/// Describes the run for its start line: "25,450 parameters on 2 ranks; …".
std::string start_line(const Trainer::Impl& trainer);

}  // namespace trireme
