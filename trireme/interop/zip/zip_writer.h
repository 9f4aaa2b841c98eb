// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme::interop {

/// Writes an archive from front to back as torch does: records are stored as they are, and each
/// begins at a multiple of 64 bytes.
class TRIREME_API ZipWriter {
 public:
  using Sink = std::function<void(const void* bytes, size_t size)>;

  /// Sizes and offsets above `classic_most` go into zip64 fields; only tests have a reason to
  /// lower it.
  explicit ZipWriter(Sink sink, uint64_t classic_most = 0xFFFFFFFE);
  void add(const std::string& name, std::span<const uint8_t> bytes);
  /// The directory. Nothing may be added after it.
  void finish();

 private:
  struct Written {
    std::string name;
    uint64_t header, size;
    uint32_t crc;
  };
  void put(const std::string& bytes);

  Sink sink_;
  uint64_t classic_most_;
  uint64_t at_ = 0;
  std::vector<Written> written_;
};

}  // namespace trireme::interop
