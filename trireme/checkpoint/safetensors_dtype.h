// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <bit>

// Inside checkpoint: the dtypes of the format.
namespace trireme {

static_assert(std::endian::native == std::endian::little,
              "safetensors bytes are written as they lie in memory");

struct SafetensorsDtype {
  const char* name;
  at::ScalarType dtype;
};

inline constexpr std::array<SafetensorsDtype, 10> kSafetensorsDtypes{{{"I64", at::kLong},
                                                                      {"F64", at::kDouble},
                                                                      {"F32", at::kFloat},
                                                                      {"I32", at::kInt},
                                                                      {"BF16", at::kBFloat16},
                                                                      {"F16", at::kHalf},
                                                                      {"I16", at::kShort},
                                                                      {"I8", at::kChar},
                                                                      {"U8", at::kByte},
                                                                      {"BOOL", at::kBool}}};

/// Undefined for a name that we do not know.
inline at::ScalarType safetensors_scalar_type(std::string_view name) {
  for (const auto& d : kSafetensorsDtypes)
    if (name == d.name) return d.dtype;
  return at::ScalarType::Undefined;
}

}  // namespace trireme
