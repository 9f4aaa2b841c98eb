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
  /// The file that a box lies in, for copy_range: as long as this object lives. Errors as above.
  std::span<const uint8_t> file_of(const NamedArray& box);
  /// Compares the checksums of the records that the array lies in, once each. Corrupt.
  void verify(const BoxedArray& array);
  void verify(const NamedArray& box);
  /// Have both the same dtype, shape and elements? Takes 2 MiB, but as much as both tensors where
  /// they lie in other boxes.
  bool same(const BoxedArray& a, const BoxedArray& b);

 private:
  std::span<const uint8_t> file(const std::string& path);
  bool same(const NamedArray& a, const NamedArray& b);

  std::map<std::string, MappedFile> files_;
  std::set<std::pair<std::string, uint64_t>> verified_;
  std::vector<uint8_t> whole_, box_;
};

/// Bytes [at, at + out.size()) of the elements, row-major; whole elements. Takes no memory, and
/// threads may do it together.
TRIREME_API void copy_range(const NamedArray& box, std::span<const uint8_t> file, uint64_t at,
                            std::span<uint8_t> out);

}  // namespace trireme::interop
