// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/checkpoint/steps/retention.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/train/report/run_report.h"
#include "trireme/train/save_schedule.h"
#include "trireme/train/setup/run_folder_guard.h"

namespace trireme {

/// The checkpoints of a run while it trains: when the next one is due, writing it, and which older
/// ones go. Every rank has one and makes the same calls; rank 0's clock and rank 0's view of the
/// folder decide for all.
class RunSaves {
 public:
  RunSaves(Trainer::Impl& trainer, const CheckpointSection& section, const std::string& run_dir,
           RunReport& report, RunFolderGuard& watch);

  /// What this rank tells the others with the step that begins now. `stop` is its own request.
  StepWish wish(int stop) const;
  void step_done(double seconds);
  /// After a step with which ranks asked so: it is to be saved.
  bool due(StepWish asked) const;
  /// The step has this held-out loss, and is one of those that stay for it. Asks rank 0.
  bool is_among_best(double loss);

  enum Failure {
    as_configured,  // checkpoint.on_error says whether an error of the disk ends the run
    must_succeed,   // an error is thrown, on all ranks
  };
  /// Saves the step, unless it is saved already, and deletes what no rule keeps any more.
  void save(Failure failure, std::optional<double> held_out_loss);
  /// The folder of the last save; "" where there was none (of undivided state: on all but rank 0).
  const std::string& last() const { return last_; }

 private:
  double now() const;
  bool leads() const;
  std::vector<SavedStep> saved_steps();

  Trainer::Impl& trainer_;
  const CheckpointSection section_;
  const std::string folder_;
  RunReport& report_;
  RunFolderGuard& watch_;
  SaveSchedule schedule_;
  const Clock::time_point begin_ = Clock::now();
  int64_t saved_at_ = -1;
  std::string last_;
  std::map<int64_t, std::optional<double>> losses_;  // of steps in the folder; rank 0
};

}  // namespace trireme
