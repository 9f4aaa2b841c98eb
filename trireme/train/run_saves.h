// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trireme/checkpoint/async_saver.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/train/kept_steps.h"
#include "trireme/train/report/run_report.h"
#include "trireme/train/save_schedule.h"
#include "trireme/train/setup/run_folder_guard.h"

namespace trireme {

/// The checkpoints of a run while it trains: when the next one is due, writing it, and which older
/// ones go. With checkpoint.async one save is under way while steps are taken; the step counts as
/// saved when it is published. Every rank has one and makes the same calls; rank 0's clock and rank
/// 0's view of the folder decide for all.
class RunSaves {
 public:
  /// Seconds that have gone by.
  using SecondsNow = std::function<double()>;

  /// `from_memory`: the launcher may be writing the step that the run goes on from.
  RunSaves(Trainer::Impl& trainer, const CheckpointSection& section, const std::string& run_dir,
           RunReport& report, RunFolderGuard& watch, SecondsNow now, bool from_memory);

  enum Failure {
    as_configured,  // checkpoint.on_error says whether an error of the disk ends the run
    must_succeed,   // an error is thrown, on all ranks
  };

  /// What this rank tells the others with the step that begins now. `stop` is its own request.
  StepWish wish(int stop) const;
  /// After a step with which ranks asked so. Takes note of a save that has ended meanwhile.
  void step_done(double seconds, StepWish asked);
  /// After a step with which ranks asked so: it is to be saved.
  bool due(StepWish asked) const;
  /// The step has this held-out loss, and is one of those that stay for it. Asks rank 0.
  bool is_among_best(double loss);

  /// Saves the step, unless it is saved already or being saved, and deletes what no rule keeps any
  /// more. One that must succeed is published when it returns. `interrupted`: that is why.
  void save(Failure failure, std::optional<double> held_out_loss, bool interrupted = false);
  /// The step is to be in memory (checkpoint.snapshot_every), and is not saved.
  bool snapshot_due() const;
  /// Copies it. Where memory does not have the room, that is a warning.
  void snapshot();
  /// Waits until no save is under way.
  void finish(Failure failure);
  /// The group has ended with an error.
  void ranks_are_lost();
  /// The folder of the last step that was published; "" if there is none.
  const std::string& last() const { return last_; }

 private:
  struct Begun {
    int64_t step;
    std::optional<double> held_out_loss;
  };
  /// Under checkpoint.names, those of the step beside "last" and "best".
  std::vector<std::string> names_of_step(bool interrupted) const;
  double now() const { return now_() - begin_; }
  bool leads() const;
  /// Runs what ends or begins a save. Whether it succeeded: an error of the disk that does not end
  /// the run is a warning.
  template <class Body>
  bool attempt(Failure failure, const Body& body);
  void write(Failure failure, std::optional<double> held_out_loss,
             const std::vector<std::string>& names);
  void begin(std::optional<double> held_out_loss, const std::vector<std::string>& names);
  void published(int64_t step);

  Trainer::Impl& trainer_;
  const CheckpointSection section_;
  const std::string folder_;
  RunReport& report_;
  RunFolderGuard& watch_;
  SaveSchedule schedule_;
  const SecondsNow now_;
  const double begin_;
  int64_t saved_at_ = -1;
  int64_t held_at_ = -1;  // the last step that was copied into memory
  std::string last_;
  KeptSteps kept_;
  bool others_save_;  // until the first save
  std::optional<Begun> under_way_;
  // checkpoint.async or snapshot_every; ends first, as its thread calls kept_
  std::optional<AsyncSaver> saver_;
};

}  // namespace trireme
