// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/run_folder_guard.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {

RunFolderGuard::RunFolderGuard(std::string folder) : folder_(std::move(folder)) {
  struct stat st {};
  if (!folder_.empty() && ::stat(folder_.c_str(), &st) != 0)
    fail<ResourceError>("the run folder {}: {}", folder_, errno_text());
  device_ = st.st_dev;
  inode_ = st.st_ino;
  looked_ = Clock::now();
}

void RunFolderGuard::check() {
  if (folder_.empty() || Clock::now() - looked_ < std::chrono::seconds(1)) return;
  check_now();
}

void RunFolderGuard::check_now() {
  if (folder_.empty()) return;
  looked_ = Clock::now();
  struct stat st {};
  const bool there = ::stat(folder_.c_str(), &st) == 0;
  // Only these errors mean that it is gone: a network file system may be slow, or refuse for a
  // while.
  if (!there && errno != ENOENT && errno != ENOTDIR) return;
  trireme::check<ResourceError>(
      there && st.st_dev == device_ && st.st_ino == inode_,
      "the run folder {} was deleted, moved or replaced while the run trained in it: what it "
      "writes is lost, so it ends. Resume from a copy of a checkpoint, or start again",
      folder_);
}

}  // namespace trireme
