// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme::interop {

inline constexpr size_t kMostDims = 64;

/// Where a tensor lies in a file: element i, j, … is at byte
/// begin + (i × strides[0] + j × strides[1] + …) × size of an element. Little-endian. Whoever made
/// it has checked that every element lies in [begin, end), and that in the file. Bytes may lie at
/// any address: copy_elements copies them.
struct TRIREME_API NamedArray {
  std::string name;
  std::string dtype;  // as safetensors names it: F32, BF16, I64, BOOL, …
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
  std::string file;
  uint64_t begin = 0, end = 0;
  /// What a checksum is of, and the elements lie in: bytes [begin, end) of the file. Empty: the
  /// file has none.
  struct Record {
    uint64_t begin = 0, end = 0;
    uint32_t crc = 0;
    bool operator==(const Record&) const = default;
  };
  Record record = {};

  int64_t elements() const;
  uint64_t bytes() const;  // of all elements; less than end - begin where there are gaps
  bool contiguous() const;
  bool operator==(const NamedArray&) const = default;
};

/// Strides of a row-major array.
TRIREME_API std::vector<int64_t> row_major(const std::vector<int64_t>& shape);

/// The product of the lengths, or -1 where it does not fit into 63 bits. A dim of zero makes it
/// zero only if the others fit.
TRIREME_API int64_t element_count(const std::vector<int64_t>& shape);

/// The elements in row-major order. `file` is the whole file that the array names; `out` has
/// array.bytes() bytes.
TRIREME_API void copy_elements(const NamedArray& array, std::span<const uint8_t> file,
                               std::span<uint8_t> out);

}  // namespace trireme::interop
