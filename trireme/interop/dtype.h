// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::interop {

/// A dtype by the names that safetensors, torch ("float32") and torch's typed storages give it.
struct Dtype {
  std::string_view name;
  uint64_t size;  // bytes an element
  std::string_view torch;
  std::string_view storage;
};

inline constexpr Dtype kDtypes[] = {
    {"F64", 8, "float64", "DoubleStorage"}, {"F32", 4, "float32", "FloatStorage"},
    {"F16", 2, "float16", "HalfStorage"},   {"BF16", 2, "bfloat16", "BFloat16Storage"},
    {"I64", 8, "int64", "LongStorage"},     {"I32", 4, "int32", "IntStorage"},
    {"I16", 2, "int16", "ShortStorage"},    {"I8", 1, "int8", "CharStorage"},
    {"U8", 1, "uint8", "ByteStorage"},      {"BOOL", 1, "bool", "BoolStorage"},
};

/// nullptr: not one of these.
inline const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.name == name) return &dtype;
  return nullptr;
}
inline const Dtype* find_torch_dtype(std::string_view torch) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.torch == torch) return &dtype;
  return nullptr;
}
inline const Dtype* find_storage_dtype(std::string_view storage) {
  for (const Dtype& dtype : kDtypes)
    if (dtype.storage == storage) return &dtype;
  return nullptr;
}

}  // namespace trireme::interop
