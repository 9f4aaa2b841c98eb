// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The words for calls and data that the local engine, the recorder and its dumps share. Their
// numbers are in dumps: new ones go to the end, none changes. No LibTorch here.
namespace trireme::flight {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, u8, i16, i8, c64, c128 };
enum class RedOp : uint8_t { sum, avg, min, max, product, band, bor, bxor };
enum class OpKind : uint8_t {
  none,
  barrier,
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  send,
  recv,
  gather,
  scatter,
  all_to_all
};

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
    case RedOp::product:
      return "product";
    case RedOp::band:
      return "band";
    case RedOp::bor:
      return "bor";
    case RedOp::bxor:
      return "bxor";
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
    case OpKind::gather:
      return "gather";
    case OpKind::scatter:
      return "scatter";
    case OpKind::all_to_all:
      return "all_to_all";
  }
  return "?";
}

constexpr bool is_integer(DType t) {
  return t == DType::i64 || t == DType::i32 || t == DType::u8 || t == DType::i16 || t == DType::i8;
}
constexpr bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }
constexpr bool is_bitwise(RedOp op) {
  return op == RedOp::band || op == RedOp::bor || op == RedOp::bxor;
}

}  // namespace trireme::flight
