// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// Detects that a run's folder was deleted, moved or replaced during training. Nothing else would:
/// open files can be written to after their deletion, and saving a checkpoint creates a missing
/// folder.
class TRIREME_API RunFolderGuard {
 public:
  /// If `folder` is empty, nothing is watched.
  explicit RunFolderGuard(std::string folder);
  /// Throws ResourceError if the folder is gone. Checks at most once a second.
  void check();
  void check_now();

 private:
  std::string folder_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  Clock::time_point looked_;
};

}  // namespace trireme
