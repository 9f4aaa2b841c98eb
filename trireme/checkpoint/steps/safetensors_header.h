// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// Reading the beginning of a safetensors file. Nothing in it is trusted: whatever does not hold
// together is Corrupt, naming the path and what is wrong.
namespace trireme {

inline constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;

struct SafetensorsArray {
  std::string name;
  std::string dtype;  // one that has an element size
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes of the file
};

struct SafetensorsHeader {
  uint64_t data = 0;                     // where the tensors' bytes begin
  std::vector<SafetensorsArray> arrays;  // in the order of their bytes, which leave no holes
  std::map<std::string, std::string> metadata;
};

/// Bytes of length and header, from the first bytes of a file of `file_size`.
TRIREME_API uint64_t safetensors_head_size(std::span<const uint8_t> first, uint64_t file_size,
                                           const std::string& path);
/// `head`: that many bytes.
TRIREME_API SafetensorsHeader read_safetensors_header(std::span<const uint8_t> head,
                                                      uint64_t file_size, const std::string& path);

}  // namespace trireme
