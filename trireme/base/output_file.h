// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme {

/// A new file, on disk when finish() returns. Errors are ResourceError with the path, the system's
/// reason and how far it came. Failpoint "checkpoint.write" at every write.
class TRIREME_API OutputFile {
 public:
  enum class Others { none, write_too };
  /// The file must not exist yet, unless other ranks write other bytes of it.
  explicit OutputFile(const std::string& path, Others others = Others::none);
  /// From here on large writes whose memory lies as the file's pages do (both addresses are equal
  /// modulo kPage) go from that memory to the disk, past the page cache, if the file system can do
  /// that: they cost the CPU next to nothing.
  void go_direct() { direct_ = true; }
  static constexpr size_t kPage = 4096;
  /// Room on the disk for bytes that are written later: a disk that has too little says so at once,
  /// and a file that has its size is written faster, most of all by several ranks, which the file
  /// system would let in one by one while it grows. Nothing where the file system cannot do it.
  void reserve(uint64_t at, uint64_t size);

  /// Behind what was written last.
  void write(const void* bytes, size_t size) { write_at(end_, bytes, size); }
  /// The disk begins with what has come together.
  void write_at(uint64_t at, const void* bytes, size_t size);
  void finish();  // fsync and close
  uint64_t written() const { return written_; }

 private:
  void write_some(uint64_t at, const char* from, size_t size);
  bool set_direct(bool on);
  void begin_writeback(uint64_t end);

  std::string path_;
  UniqueFd fd_;
  uint64_t written_ = 0, end_ = 0;
  bool direct_ = false, direct_now_ = false;
  uint64_t waits_from_ = 0;  // for the disk to begin, up to end_
};

}  // namespace trireme
