// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/step_files.h"
#include "trireme/checkpoint/steps/run_folder.h"
#include "trireme/comm/group.h"

namespace trireme {

/// What a rank has written of a step.
struct WrittenFiles {
  RankFailure failure;
  std::vector<uint64_t> checksums;  // of its blocks, in the order of its writes
  TRIREME_FIELDS(failure, checksums)
};

/// One save of one step by all ranks of a group: first they agree on who writes what, then each
/// writes its files, then rank 0 publishes the step. Writing and publishing do not use the group.
class StepSave {
 public:
  StepSave(std::string run_dir, int64_t step, Group group, ShardedSaveOptions options);

  /// Every rank calls it. Rank 0 asks what each rank holds and whether it sees the folder, and
  /// answers for all at once, so that whatever fails on one of them is thrown by all.
  void agree(const StateWalk& walk);
  /// After that: what this rank's walk showed, what it writes, and the step's temporary folder.
  const Collector& state() const { return *state_; }
  const WriteOrders& orders() const { return orders_; }
  const std::string& folder() const { return folder_; }
  /// Lets go of the walk's tensors, for a save that has copied them.
  void forget_state() { state_.reset(); }

  /// Writes and syncs this rank's files; does not throw.
  WrittenFiles write(const BytesOfWrite& bytes_of);
  /// Rank 0: writes the index and publishes the step, or removes what there is of it where a rank
  /// has failed. By rank; does not throw.
  RankFailure publish(const std::vector<WrittenFiles>& all);
  /// Rank 0: removes what there is of the step.
  void give_up() { draft_.reset(); }

 private:
  struct Rank0;
  std::string not_saved(const std::string& why) const;

  const std::string run_dir_;
  const int64_t step_;
  Group group_;
  const ShardedSaveOptions options_;
  std::optional<Collector> state_;
  std::string folder_;
  WriteOrders orders_;
  std::vector<std::string> hosts_;  // from here on rank 0's
  SavePlan plan_;
  std::optional<StepDraft> draft_;
};

}  // namespace trireme
