// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/train/data_place.h"
#include "trireme/train/in_place/ends_group.h"
#include "trireme/train/in_place/group_is_over.h"
#include "trireme/train/in_place/kept_state.h"
#include "trireme/train/program/make_trainer.h"
#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// What a run takes with it from one group to the next in this process, while ranks come and go.
/// Its parts are dropped with the old group and built again on the new one; nothing in memory that
/// a lost rank could write is kept.
///
/// A step is taken by all ranks or by none. Where ranks hold copies of one state, those that had
/// not finished the newest step get it from one that had. Where each holds a part, those of one
/// step that are left must be the whole of it. A rank that was stopped in the middle of its update
/// has nothing to give.
class TRIREME_API InPlace {
 public:
  struct Options {
    int first_ranks = 1;            // that the run has when none is missing
    bool scaled = false;            // elastic.batch
    std::function<bool()> is_over;  // another group is waiting
    std::function<void()> is_able;  // this rank trains, and can go on with others
  };
  explicit InPlace(Options options) : options_(std::move(options)) {}

  /// The run is on its way to a group that is not its first: the number of its generation.
  void goes_on(int64_t generation) { generation_ = generation, on_the_way_ = true; }
  bool is_over() const { return options_.is_over(); }

  /// On a group that is not the first, every rank of which calls it: whether they hold the whole
  /// state of a step, of which the parts are to be filled. Else nothing is kept, and the run goes
  /// on from elsewhere, on all of them.
  bool find_step(Group group);
  /// What the last find_step() said.
  bool is_going_on() const { return goes_on_; }

  /// How the parts are to be built on this group, every rank of which calls it.
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
  /// What a rank has kept. Of two generations' steps the later one's count, whatever their numbers:
  /// it may have gone back.
  struct Standing {
    int64_t generation = 0;  // in which it was trained
    int64_t step = -1;       // -1: this rank holds none
    bool saves_due = false;
    std::vector<KeptBox> boxes;
    WholeState whole;
    TRIREME_FIELDS(generation, step, saves_due, boxes, whole)
    std::pair<int64_t, int64_t> when() const { return {step < 0 ? -1 : generation, step}; }
  };
  void forget();

  const Options options_;
  int64_t generation_ = 0;
  bool on_the_way_ = false, goes_on_ = false;
  KeptState kept_;
  Standing standing_;  // of what is kept
  WholeState whole_;   // of the run on this group
  std::vector<BoxSent> sent_;

  bool in_step_ = false, saves_due_ = false;
  std::optional<DataOrigin> origin_;  // of the step that has begun
  /// What a forward changes (running statistics), before the step that has begun.
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

}  // namespace trireme
