// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/rendezvous/generations.h"
#include "trireme/train/in_place/in_place.h"
#include "trireme/train/trainer.h"

namespace trireme {

/// A run of one rank through its groups: one, unless elastic.mode is in_process. Then it goes on
/// on another when a rank of its group is lost, or when one waits to be taken in.
class RankGenerations {
 public:
  /// UsageError: elastic.mode asks for what nobody here can do. `stop_asked` as in TrainOptions.
  RankGenerations(const Config& config, std::function<int()> stop_asked);

  /// This process was started in the place of one that had ended.
  bool came_later() const { return member_ && member_->came_later(); }

  /// The group that trains now is not the first one of its attempt.
  bool is_later() const { return member_ && member_->generation().number > 0; }

  /// Trains on a group, with what a run takes from one to the next; null: there is but one.
  using Body = std::function<TrainResult(Group, InPlace*)>;
  struct End {
    TrainResult result;
    std::optional<int> exit_code;  // of the run, which others have ended while this rank waited
  };
  /// Runs `body` on one group after the other until the run has ended. Throws what `body` throws
  /// unless the run can go on; `failed` hears of it first, with the group.
  End run(const Body& body, const std::function<void(Group&, const std::exception&)>& failed);
  /// The run's last group, which this rank was in, has ended it so: who waits ends, too.
  void say_over(int exit_code);

 private:
  /// Ranks of the generation that train; the others wait as spares.
  int active() const;
  /// Waits until this rank is to train in a group. False: the run is over.
  bool wait_for_turn(End& end);

  const Config& config_;
  const std::function<int()> stop_asked_;
  std::unique_ptr<GenerationMember> member_;  // null: there is one group
  std::optional<InPlace> in_place_;
  Group world_;  // the last
  int last_rank_ = 0;
};

}  // namespace trireme
