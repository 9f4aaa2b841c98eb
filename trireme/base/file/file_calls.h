// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/file/file_faults.h"

// The system calls on files that saving, pruning, resuming and taking a run folder make, each like
// the system call of its name: its result, and errno. Tests number them and make them fail
// (file_faults.h); otherwise each costs one relaxed load more. A descriptor that is closed because
// its owner goes away (UniqueFd) is not among them: nothing depends on that call.
namespace trireme::file_calls {

TRIREME_API int open(const std::string& path, int flags, mode_t mode = 0);
TRIREME_API ssize_t write(int fd, const void* bytes, size_t size);
TRIREME_API ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset);
TRIREME_API ssize_t read(int fd, void* into, size_t size);
TRIREME_API ssize_t pread(int fd, void* into, size_t size, off_t offset);
/// Only what the page cache holds: preadv2 with RWF_NOWAIT. EAGAIN: the next byte is not there.
TRIREME_API ssize_t pread_cached(int fd, void* into, size_t size, off_t offset);
TRIREME_API int fsync(int fd);
TRIREME_API int fdatasync(int fd);
TRIREME_API int close(int fd);
TRIREME_API int rename(const std::string& from, const std::string& to);
TRIREME_API int exchange(const std::string& a, const std::string& b);  // RENAME_EXCHANGE
TRIREME_API int link(const std::string& from, const std::string& to);
/// Numbered as a link of `path`.
TRIREME_API int symlink(const std::string& target, const std::string& path);
/// The time of change becomes the file server's now.
TRIREME_API int touch(const std::string& path);
TRIREME_API int mkdir(const std::string& path, mode_t mode);
TRIREME_API int unlink(const std::string& path);
TRIREME_API int rmdir(const std::string& path);
TRIREME_API DIR* opendir(const std::string& path);
/// Numbered under `path`. Null and errno 0 at the end.
TRIREME_API dirent* readdir(DIR* folder, const std::string& path);
TRIREME_API int stat(const std::string& path, struct ::stat* into);
TRIREME_API int lstat(const std::string& path, struct ::stat* into);
TRIREME_API int fstat(int fd, struct ::stat* into);
TRIREME_API int ftruncate(int fd, off_t size);
TRIREME_API int fallocate(int fd, off_t offset, off_t size);
/// Gives the error, and does not set errno.
TRIREME_API int posix_fallocate(int fd, off_t offset, off_t size);
TRIREME_API int flock(int fd, int operation);
TRIREME_API int statvfs(const std::string& path, struct ::statvfs* into);
TRIREME_API int fstatvfs(int fd, struct ::statvfs* into);
/// Read-only and shared; MAP_FAILED where it fails.
TRIREME_API void* map(int fd, size_t size, off_t offset);

/// For calls that are handed to the kernel and come back later (io_uring): null where nothing is
/// planned, else error(), size() and done() of the call that begins now.
TRIREME_API std::unique_ptr<detail::FileVisit> before(detail::FileCall call);

}  // namespace trireme::file_calls
