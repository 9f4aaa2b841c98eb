// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "trireme/comm/group.h"
#include "trireme/comm/local/types.h"

// LibTorch's dtypes as a module knows them, and which reductions each has.
namespace trireme::detail {

constexpr std::optional<local::DType> mpi_dtype(at::ScalarType t) {
  switch (t) {
    case at::kDouble:
      return local::DType::f64;
    case at::kFloat:
      return local::DType::f32;
    case at::kHalf:
      return local::DType::f16;
    case at::kBFloat16:
      return local::DType::bf16;
    case at::kLong:
      return local::DType::i64;
    case at::kInt:
      return local::DType::i32;
    case at::kByte:
    case at::kBool:  // 0 and 1: product, min and max are as they should be
      return local::DType::u8;
    case at::kShort:
      return local::DType::i16;
    case at::kChar:
      return local::DType::i8;
    case at::kComplexFloat:
      return local::DType::c64;
    case at::kComplexDouble:
      return local::DType::c128;
    default:
      return std::nullopt;
  }
}

constexpr bool mpi_reduces(ReduceOp op, at::ScalarType t) {
  const auto type = mpi_dtype(t);
  if (!type) return false;
  switch (op) {
    case ReduceOp::sum:
      return t != at::kBool;
    case ReduceOp::avg:
      return !local::is_integer(*type);
    case ReduceOp::min:
    case ReduceOp::max:
      return !local::is_complex(*type);
    case ReduceOp::product:
      return true;
    default:
      return local::is_integer(*type);
  }
}

}  // namespace trireme::detail
