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
  /// Behind what was written last.
  void write(const void* bytes, size_t size) { write_at(end_, bytes, size); }
  void write_at(uint64_t at, const void* bytes, size_t size);
  void finish();  // fsync and close
  uint64_t written() const { return written_; }

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t written_ = 0, end_ = 0;
};

}  // namespace trireme
