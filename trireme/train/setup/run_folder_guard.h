// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme {

/// Notices that a run's folder was deleted, moved or replaced while the run trains. Nothing else
/// would: files that are open can be written to after their deletion, and saving a checkpoint makes
/// a folder that is missing.
class TRIREME_API RunFolderGuard {
 public:
  /// "": watches nothing.
  explicit RunFolderGuard(std::string folder);
  /// ResourceError. Looks at most once a second.
  void check();
  void check_now();

 private:
  std::string folder_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  Clock::time_point looked_;
};

}  // namespace trireme
