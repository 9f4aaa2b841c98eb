// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// Whole small files, and publishing without ever showing half of one. Errors are ResourceError with
// the path and the system's reason.
namespace trireme {

/// Refuses more than `limit` bytes, and what is no regular file: for files that somebody else may
/// have written, or put a pipe or a device in place of, for which one would wait without end. What
/// this process was given by descriptor (/dev/stdin, /dev/fd/63, as of a shell's `<(…)`) may be a
/// pipe.
TRIREME_API std::string read_file(const std::string& path, size_t limit = size_t{64} << 20);
/// Temporary beside `path`, fsync, rename, fsync of the folder. A file or link that has the
/// temporary's name is removed and not written to.
TRIREME_API void write_file_atomic(const std::string& path, std::string_view bytes);
TRIREME_API void fsync_path(const std::string& path);  // a file or a folder

/// A new folder under $TMPDIR (or /tmp), mode 0700, removed with all it holds when the object dies.
class TRIREME_API PrivateFolder {
 public:
  explicit PrivateFolder(std::string_view prefix = "trireme");
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace trireme
