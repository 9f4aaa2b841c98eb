// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme {

/// A new file, written from front to back and on disk when finish() returns. Errors are
/// ResourceError with the path, the system's reason and how far it came. Failpoint
/// "checkpoint.write" at every write.
class TRIREME_API OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // must not exist yet
  void write(const void* bytes, size_t size);
  void finish();  // fsync and close
  uint64_t written() const { return written_; }

 private:
  std::string path_;
  UniqueFd fd_;
  uint64_t written_ = 0;
};

}  // namespace trireme
