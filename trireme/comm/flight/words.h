// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/comm/ops.h"

// The data types that the local engine, the recorder and its dumps share; those for calls are in
// comm/ops.h. The numbers are part of dumps: append new ones at the end and never change one. This
// header does not need LibTorch.
namespace trireme::flight {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, u8, i16, i8, c64, c128 };

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::c128:
      return 16;
    case DType::f64:
    case DType::i64:
    case DType::c64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return 2;
    case DType::u8:
    case DType::i8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    case DType::i64:
      return "int64";
    case DType::i32:
      return "int32";
    case DType::u8:
      return "uint8";
    case DType::i16:
      return "int16";
    case DType::i8:
      return "int8";
    case DType::c64:
      return "complex64";
    case DType::c128:
      return "complex128";
  }
  return "?";
}

constexpr bool is_integer(DType t) {
  return t == DType::i64 || t == DType::i32 || t == DType::u8 || t == DType::i16 || t == DType::i8;
}
constexpr bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }

}  // namespace trireme::flight
