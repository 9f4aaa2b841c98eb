// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/interop/named_array.h"

namespace trireme::interop {

inline constexpr uint64_t kMostSafetensorsHeader = 100'000'000;  // bytes; the reference's bound

/// A NamedArray without what all of a file's have in common: of 40,000 that is most.
struct SafetensorsEntry {
  std::string name;
  std::string_view dtype;  // one of kDtypes
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the file
};

/// As they are read there is one copy of them.
struct SafetensorsEntries {
  uint64_t data = 0;                     // where the tensors' bytes begin
  std::deque<SafetensorsEntry> entries;  // in the order of their bytes, which leave no holes
  std::map<std::string, std::string> metadata;
};

struct SafetensorsHeader {
  uint64_t data = 0;               // where the tensors' bytes begin
  std::vector<NamedArray> arrays;  // in the order of their bytes, which leave no holes
  std::map<std::string, std::string> metadata;
};

/// Bytes of length and header, from the first bytes (at least 8, or all) of a file of `file_size`.
TRIREME_API uint64_t safetensors_head_size(std::span<const uint8_t> first, uint64_t file_size,
                                           const std::string& path);
/// `head`: that many bytes, of a file of `file_size`. Corrupt as below.
TRIREME_API SafetensorsEntries read_safetensors_entries(std::span<const uint8_t> head,
                                                        uint64_t file_size,
                                                        const std::string& path);
TRIREME_API SafetensorsHeader read_safetensors_header(std::span<const uint8_t> head,
                                                      uint64_t file_size, const std::string& path);
/// Of the whole file in `bytes`. Corrupt, naming `path` and what is wrong, for whatever does not
/// hold together.
TRIREME_API SafetensorsHeader read_safetensors_header(std::span<const uint8_t> bytes,
                                                      const std::string& path);

}  // namespace trireme::interop
