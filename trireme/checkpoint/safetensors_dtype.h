// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <bit>
#include <cstdint>

// Inside checkpoint: the dtypes of the format.
namespace trireme {

static_assert(std::endian::native == std::endian::little,
              "safetensors bytes are written as they lie in memory");

struct SafetensorsDtype {
  const char* name;
  at::ScalarType dtype;
  uint64_t size;
};

/// In the order in which a file holds them: falling alignment, so that every tensor starts aligned.
inline constexpr std::array<SafetensorsDtype, 10> kSafetensorsDtypes{{{"I64", at::kLong, 8},
                                                                      {"F64", at::kDouble, 8},
                                                                      {"F32", at::kFloat, 4},
                                                                      {"I32", at::kInt, 4},
                                                                      {"BF16", at::kBFloat16, 2},
                                                                      {"F16", at::kHalf, 2},
                                                                      {"I16", at::kShort, 2},
                                                                      {"I8", at::kChar, 1},
                                                                      {"U8", at::kByte, 1},
                                                                      {"BOOL", at::kBool, 1}}};

}  // namespace trireme
