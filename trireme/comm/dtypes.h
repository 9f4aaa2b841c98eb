// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>

#include "trireme/comm/group.h"
#include "trireme/comm/local/types.h"

// Maps LibTorch's dtypes to those of our reductions, the flight recorder and MPI's modules, and
// says which reductions each supports.
namespace trireme::detail {

constexpr std::optional<local::DType> word_for(at::ScalarType type) {
  using local::DType;
  switch (type) {
    case at::kDouble:
      return DType::f64;
    case at::kFloat:
      return DType::f32;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kLong:
      return DType::i64;
    case at::kInt:
      return DType::i32;
    case at::kShort:
      return DType::i16;
    case at::kChar:
      return DType::i8;
    case at::kByte:
    case at::kBool:  // for 0 and 1, product, min and max are right
      return DType::u8;
    case at::kComplexFloat:
      return DType::c64;
    case at::kComplexDouble:
      return DType::c128;
    default:
      return std::nullopt;
  }
}

/// The same by a table, which avoids a switch that every call would mispredict. nullopt: no backend
/// of ours carries it.
inline std::optional<local::DType> dtype_of(at::ScalarType type) {
  constexpr auto n = static_cast<size_t>(at::ScalarType::NumOptions);
  static constexpr auto words = [] {
    std::array<std::optional<local::DType>, n> table;
    for (size_t i = 0; i < n; ++i) table[i] = word_for(static_cast<at::ScalarType>(i));
    return table;
  }();
  return static_cast<size_t>(type) < n ? words[static_cast<size_t>(type)] : std::nullopt;
}

inline bool reduces(ReduceOp op, at::ScalarType type) {
  const auto word = dtype_of(type);
  if (!word) return false;
  switch (op) {
    case ReduceOp::sum:
      return type != at::kBool;
    case ReduceOp::avg:
      return !local::is_integer(*word);
    case ReduceOp::min:
    case ReduceOp::max:
      return !local::is_complex(*word);
    case ReduceOp::product:
      return true;
    default:
      return local::is_integer(*word);
  }
}

}  // namespace trireme::detail
