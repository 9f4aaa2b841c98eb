// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

struct ElementSize {
  const char* dtype;  // as in files
  int64_t bytes;
};

/// In the order in which a file holds them: falling alignment, so that every tensor starts aligned.
inline constexpr std::array<ElementSize, 10> kElementSizes{{{"I64", 8},
                                                            {"F64", 8},
                                                            {"F32", 4},
                                                            {"I32", 4},
                                                            {"BF16", 2},
                                                            {"F16", 2},
                                                            {"I16", 2},
                                                            {"I8", 1},
                                                            {"U8", 1},
                                                            {"BOOL", 1}}};

/// Bytes of an element of "F32", …; 0 for a name that we do not know.
constexpr int64_t safetensors_item_size(std::string_view dtype) {
  for (const ElementSize& e : kElementSizes)
    if (dtype == e.dtype) return e.bytes;
  return 0;
}

}  // namespace trireme
