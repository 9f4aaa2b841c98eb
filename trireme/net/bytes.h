// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// Fields of a message: little-endian integers, and byte strings after their u32 length.
namespace trireme::net {

class TRIREME_API Writer {
 public:
  Writer& u8(uint8_t value) { return put(value, 1); }
  Writer& u16(uint16_t value) { return put(value, 2); }
  Writer& u32(uint32_t value) { return put(value, 4); }
  Writer& u64(uint64_t value) { return put(value, 8); }
  Writer& i64(int64_t value) { return put(static_cast<uint64_t>(value), 8); }
  /// Length, then the bytes; under 4 GiB.
  Writer& string(std::string_view bytes);
  /// The bytes alone: both sides know how many.
  Writer& raw(std::string_view bytes) { return bytes_.append(bytes), *this; }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  Writer& put(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

/// Reads what a Writer wrote, from bytes that anybody may have sent: every step is bounded, and
/// Corrupt names `what` when they end early, promise more than there is, or go on after the end.
class TRIREME_API Reader {
 public:
  /// `bytes` must outlive the reader and the views that it returns.
  Reader(std::string_view bytes, std::string_view what) : rest_(bytes), what_(what) {}

  uint8_t u8() { return static_cast<uint8_t>(get(1)); }
  uint16_t u16() { return static_cast<uint16_t>(get(2)); }
  uint32_t u32() { return static_cast<uint32_t>(get(4)); }
  uint64_t u64() { return get(8); }
  int64_t i64() { return static_cast<int64_t>(get(8)); }
  std::string_view string(size_t limit = SIZE_MAX);
  std::string_view raw(size_t bytes);
  /// A number of items to come, each of at least `least` bytes: never more than the rest can hold.
  uint32_t count(size_t least);

  size_t left() const { return rest_.size(); }
  /// Nothing may be left.
  void finish() const;

 private:
  uint64_t get(int bytes);

  std::string_view rest_;
  std::string_view what_;
};

}  // namespace trireme::net
