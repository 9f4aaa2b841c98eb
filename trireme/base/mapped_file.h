// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/export.h"

namespace trireme {

/// A regular file, mapped read-only. Throws UsageError for a missing path or something that is not
/// a regular file, ResourceError for one that cannot be read or mapped. A file that somebody
/// truncates while it is mapped ends the process with SIGBUS when the lost part is read, as with
/// any mapping.
class TRIREME_API MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trireme
