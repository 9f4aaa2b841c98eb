// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// What a test makes the file system do to this process. Off unless TRIREME_FILE_FAULTS (or
// set_file_faults) says so; then a list, separated by commas:
//
//   17:kill-before  17:kill-after   this process ends by SIGKILL at its call number 17
//   17:kill-group-before  …-after   … with its whole process group: all ranks at once
//   17:EIO                          the call is not made and fails so (also ENOSPC, EDQUOT, EROFS,
//                                   EINVAL, ENOLCK, EOPNOTSUPP); 17+: and all later ones that such
//                                   a disk would refuse
//   exchange:EINVAL                 all calls of that kind (name_of below) fail so
//   17:short                        from number 17 on, the first read or write moves half
//   17:fsync-fails                  from number 17 on, the first fsync or fdatasync gives EIO
//   slow=1000000                    writes wait, so that together they take so many bytes a second
//   only=TEXT                       numbers only calls on paths that contain TEXT
//   rank=R                          … of this rank (base/rank_label.h)
//   count=PATH                      appends a line for each numbered call to PATH
//   record=PATH                     … and what it wrote to PATH.data: enough to make them again
//
// Calls are numbered from 1 in each process, in the order in which they begin. Of faults that fit a
// call the first of the list acts. A slow disk is slow to this process alone: others' writes, and
// calls that are not numbered, do not wait.
namespace trireme {

/// Replaces the plan, for this process, and begins to count anew. "" disarms. Throws UsageError for
/// text it cannot read.
TRIREME_API void set_file_faults(const std::string& text);

enum class FileCallKind {
  open,
  create,  // open with O_CREAT
  write,
  pwrite,
  read,
  pread,
  pread_cached,
  fsync,
  fdatasync,
  close,
  rename,
  exchange,
  mkdir,
  unlink,
  rmdir,
  opendir,
  readdir,
  stat,
  truncate,
  allocate,
  lock,
  statvfs,
  map,
  link,
  touch  // utimensat: a new time of change
};
TRIREME_API const char* name_of(FileCallKind kind);

namespace detail {

TRIREME_API bool file_faults_armed();

struct FileCall {
  FileCallKind kind;
  int fd = -1;  // its path is asked of the kernel where `path` is empty
  std::string path = {}, to = {};
  const void* bytes = nullptr;  // what is written
  size_t size = 0;
  int64_t offset = -1;  // -1: where the descriptor stands
  bool truncates = false;
  bool comes_back_later = false;  // others may begin before done()
};

/// One numbered call: acts as planned before it, and after it in done(). Made only when armed.
class TRIREME_API FileVisit {
 public:
  explicit FileVisit(FileCall call);
  ~FileVisit();
  FileVisit(const FileVisit&) = delete;
  /// 0, or the errno with which the call must fail without being made.
  int error() const { return error_; }
  /// How many bytes the call may move.
  size_t size() const { return size_; }
  /// The call has come back with `result` (below zero: it failed).
  void done(int64_t result);

 private:
  void wait_for_slow_disk() const;
  void open_log();
  void append_to_log(int64_t result);

  FileCall call_;
  int64_t number_ = 0;  // 0: not one of those that are numbered
  int error_ = 0;
  size_t size_ = 0;
  int end_after_ = 0;     // -1: this process, 1: its group
  std::string log_path_;  // "": nothing is logged
  bool keeps_bytes_ = false;
  int log_ = -1;  // held under a lock, so that the order of lines is that of calls
};

}  // namespace detail
}  // namespace trireme
