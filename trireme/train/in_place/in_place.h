// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/export.h"
#include "trireme/train/data_place.h"
#include "trireme/train/in_place/kept_state.h"
#include "trireme/train/program/make_trainer.h"
#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// The group of ranks is finished, by whatever happened to one of them.
bool ends_group(const std::exception& error);

/// Thrown out of train() between two steps: the ranks leave their group, because another is waiting
/// in which there are more of them.
class TRIREME_API GroupIsOver final : public Error {
 public:
  using Error::Error;
  const char* kind() const override { return "GroupIsOver"; }
};

/// What a run takes with it from one group to the next in this process, while ranks come and go.
/// Its parts are dropped with the old group and built again on the new one; nothing in memory that
/// a lost rank could write is kept.
///
/// A step is taken by all ranks or by none: those that had not finished the newest one get the
/// state of one that had. A rank that was stopped in the middle of its update has nothing to give.
class TRIREME_API InPlace {
 public:
  struct Options {
    int first_ranks = 1;            // that the run has when none is missing
    bool scaled = false;            // elastic.batch
    std::function<bool()> is_over;  // another group is waiting
    std::function<void()> is_able;  // this rank holds a step, and can go on with others
  };
  explicit InPlace(Options options) : options_(std::move(options)) {}

  /// The run goes on on a group that is not its first.
  void goes_on() { goes_on_ = true; }
  bool is_going_on() const { return goes_on_; }
  bool is_over() const { return options_.is_over(); }

  /// How the parts are to be built on this group, every rank of which calls it. Where the run goes
  /// on, the ranks find out which of them holds the newest step; ResourceError if none does.
  TrainerStart start(const Config& config, Group group);
  /// Fills them, where the run goes on. Then this rank is able to lose others.
  void fill(Trainer::Impl& trainer);

  // The places of a loop.
  void begin_step(Trainer::Impl& trainer);
  void step_taken() { in_step_ = false, saves_due_ = true, origin_.reset(); }
  /// What comes between two steps is done.
  void settled() { saves_due_ = false; }
  /// Saves and evaluations after the last step, during which the group was lost, are to come.
  bool saves_are_due() const { return saves_due_; }
  /// The group is finished: keeps the state of the last step that this rank has finished.
  void keep(Trainer::Impl& trainer);

 private:
  struct Standing {
    int64_t step = -1;  // -1: this rank holds none
    bool saves_due = false;
    TRIREME_FIELDS(step, saves_due)
  };

  const Options options_;
  bool goes_on_ = false;
  KeptState kept_;
  Standing standing_;  // of what is kept
  int source_ = 0;     // the rank from which the others fill their parts
  bool all_hold_ = false;

  bool in_step_ = false, saves_due_ = false;
  std::optional<DataOrigin> origin_;  // of the step that has begun
  /// What a forward changes (running statistics), before the step that has begun.
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

}  // namespace trireme
