// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/mapped_file.h"
#include "trireme/interop/array_folder.h"

namespace trireme::interop {

/// Reads the elements of arrays, wherever they lie. Maps each file once, and keeps it. Not for two
/// threads.
class TRIREME_API ArrayReader {
 public:
  /// Row-major. Valid until the next call, which takes as much memory as one tensor where it lies
  /// in several boxes or strided, and none else. Corrupt where a file has become shorter, or where
  /// the boxes have more elements than the files have bytes.
  std::span<const uint8_t> elements(const BoxedArray& array);
  /// The same of one box.
  std::span<const uint8_t> elements(const NamedArray& box);
  /// Compares the checksums of the records that the array lies in, once each. Corrupt.
  void verify(const BoxedArray& array);
  void verify(const NamedArray& box);
  /// Have both the same dtype, shape and elements?
  bool same(const BoxedArray& a, const BoxedArray& b);

 private:
  std::span<const uint8_t> file(const std::string& path);

  std::map<std::string, MappedFile> files_;
  std::set<std::pair<std::string, uint64_t>> verified_;
  std::vector<uint8_t> whole_, box_;
};

}  // namespace trireme::interop
