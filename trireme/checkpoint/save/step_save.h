// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/checkpoint/rank_failure.h"
#include "trireme/checkpoint/save/early_writes.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/step_files.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/snapshot/snapshot_format.h"
#include "trireme/comm/group.h"

namespace trireme {

/// What a rank has written of a step.
struct WrittenFiles {
  RankFailure failure;
  std::vector<uint64_t> checksums;  // of its blocks, in the order of its writes
  TRIREME_FIELDS(failure, checksums)
};

/// What a rank keeps from one save to the next: who writes what stays as it is while no rank holds
/// other tensors. Used by one save at a time.
struct SaveMemo {
  bool known = false;   // there was a save, and its ranks agreed
  uint64_t digest = 0;  // of the tensors that this rank held
  WriteOrders orders;
  int64_t plans = 0;  // how often they were made
  SnapshotLabel label;
  int64_t label_of = 0;  // plans then
  bool label_partial = false;
  // rank 0's
  std::vector<HeldState> held;
  std::vector<bool> sees;
  SavePlan plan;
};

/// One save of one step by all ranks of a group: first they agree on who writes what, then each
/// writes its files, then rank 0 publishes the step. Writing and publishing do not use the group.
class StepSave {
 public:
  /// `memo`: of the saves before it, of the same ranks, on all ranks or on none.
  StepSave(std::string run_dir, int64_t step, Group group, ShardedSaveOptions options,
           std::shared_ptr<SaveMemo> memo = std::make_shared<SaveMemo>());
  /// Nothing is written: agree() looks at no disk, and makes no folder. What comes before a
  /// snapshot alone may be called. Before agree(), on all ranks.
  void stay_in_memory() { in_memory_ = true; }

  /// Every rank calls it. Rank 0 asks what each rank holds and whether it sees the folder, and
  /// answers for all at once, so that whatever fails on one of them is thrown by all. Ranks that
  /// hold the tensors of their last save do not name them again.
  void agree(const StateWalk& walk);
  /// After that: what this rank's walk showed, what it writes, and the step's temporary folder.
  const Collector& state() const { return *state_; }
  const WriteOrders& orders() const { return early_ ? early_->others() : memo_->orders; }
  const std::string& folder() const { return folder_; }
  /// Writes what the walk showed of files; the orders are without it then. ResourceError.
  void write_file_views() { early_.emplace(folder_, *state_, memo_->orders); }
  /// Lets go of the walk's tensors, for a save that has copied them.
  void forget_state() { state_.reset(); }

  /// What a snapshot of the orders says of itself, when agree() has ended and file views are
  /// written.
  const SnapshotLabel& label();

  /// Writes and syncs this rank's files; does not throw. `checksums`, if it is set, is given those
  /// of the orders' blocks.
  using Checksums = std::function<void(const std::vector<uint64_t>&)>;
  WrittenFiles write(const BytesOfWrite& bytes_of, BytesLast last = BytesLast::until_the_next,
                     const Checksums& checksums = {});
  /// Rank 0: writes the index and publishes the step, or removes what there is of it where a rank
  /// has failed. By rank; does not throw.
  RankFailure publish(const std::vector<WrittenFiles>& all);
  /// Rank 0: removes what there is of the step.
  void give_up() { draft_.reset(); }

 private:
  std::string not_saved(const std::string& why) const;

  const std::string run_dir_;
  const int64_t step_;
  Group group_;
  const ShardedSaveOptions options_;
  bool in_memory_ = false;
  std::optional<Collector> state_;
  std::string folder_;
  const std::shared_ptr<SaveMemo> memo_;
  std::optional<EarlyWrites> early_;
  std::vector<std::string> hosts_;  // from here on rank 0's
  std::optional<StepDraft> draft_;
};

}  // namespace trireme
