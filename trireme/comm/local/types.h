// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The local engine's words for data. No LibTorch here: pointers, dtypes, counts.
namespace trireme::local {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, u8 };
enum class RedOp : uint8_t { sum, avg, min, max };
enum class OpKind : uint8_t {
  none,
  barrier,
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  send,
  recv
};

constexpr size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
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
  }
  return "?";
}

constexpr const char* name_of(RedOp op) {
  switch (op) {
    case RedOp::sum:
      return "sum";
    case RedOp::avg:
      return "avg";
    case RedOp::min:
      return "min";
    case RedOp::max:
      return "max";
  }
  return "?";
}

constexpr const char* name_of(OpKind op) {
  switch (op) {
    case OpKind::none:
      return "nothing";
    case OpKind::barrier:
      return "barrier";
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::broadcast:
      return "broadcast";
    case OpKind::reduce:
      return "reduce";
    case OpKind::all_gather:
      return "all_gather";
    case OpKind::reduce_scatter:
      return "reduce_scatter";
    case OpKind::send:
      return "send";
    case OpKind::recv:
      return "recv";
  }
  return "?";
}

constexpr bool is_integer(DType t) { return t == DType::i64 || t == DType::i32 || t == DType::u8; }

}  // namespace trireme::local
