// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/clock.h"

// Locks of a store's file: open-file-description locks (F_OFD_SETLK), which exclude threads and
// processes alike, across hosts where the file system shares them, and vanish with their holder.
// They lie on bytes far behind any that the file has.
namespace trireme::detail {

inline constexpr int64_t kLogLock = int64_t{1} << 61;           // whoever reads or writes the log
inline constexpr int64_t kClientLock = (int64_t{1} << 61) + 1;  // + its number: as long as it lives

enum class LockMode { shared, exclusive };

/// Holds one byte's lock of `fd` until it goes. Timeout when others hold it until the deadline;
/// ResourceError where the file system has no such locks, PeerLost when the file is gone. `where`
/// names the file.
class FileLock {
 public:
  FileLock(int fd, int64_t at, LockMode mode, Deadline deadline, const std::string& where);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  /// Keeps the lock until `fd` is closed.
  void keep() { fd_ = -1; }

 private:
  int fd_;
  int64_t at_;
};

/// Whether somebody else than `fd` holds the byte's lock exclusively.
bool is_locked(int fd, int64_t at, const std::string& where);

}  // namespace trireme::detail
