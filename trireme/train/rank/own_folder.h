// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/launch/run_lock.h"
#include "trireme/train/rank/task_options.h"

namespace trireme {

/// The run folder, where ranks have it themselves, because no launcher of ours that outlives them
/// does: they are on several hosts, or were started by another launcher, or by hand.
class OwnFolder {
 public:
  /// Takes over what this process had before it became a rank. ResourceError: the folder is
  /// another's.
  OwnFolder(const TaskOptions& given, int rank);
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;

  /// On each group of a run whose ranks come and go, every rank of which calls it: when the rank
  /// that had the folder is lost, rank 0 takes it. `steps`: where checkpoints are. ResourceError:
  /// another job was quicker.
  void keep(Group world, const std::string& steps);

 private:
  void take(const std::string& owner, const std::string& steps);

  std::string run_dir_, made_;
  std::string owner_;  // what the lock said on the last group; "": the ranks do not have the folder
  std::optional<launch::RunLock> lock_, steps_lock_;
};

}  // namespace trireme
