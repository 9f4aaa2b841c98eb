// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "trireme/comm/group.h"
#include "trireme/comm/local/types.h"

namespace trireme::detail {

/// As what our own reduction adds elements of this type; nullopt: it does not.
inline std::optional<local::DType> reduced_as(at::ScalarType type) {
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
    case at::kBool:
      return DType::u8;
    case at::kComplexFloat:
      return DType::c64;
    case at::kComplexDouble:
      return DType::c128;
    default:
      return std::nullopt;
  }
}

/// Whether our own reduction has this op for this type.
inline bool reduces(ReduceOp op, at::ScalarType type) {
  const auto as = reduced_as(type);
  if (!as) return false;
  switch (op) {
    case ReduceOp::sum:
      return type != at::kBool;
    case ReduceOp::avg:
      return !local::is_integer(*as);
    case ReduceOp::min:
    case ReduceOp::max:
      return !local::is_complex(*as);
    case ReduceOp::product:
      return true;
    default:
      return local::is_integer(*as);
  }
}

}  // namespace trireme::detail
