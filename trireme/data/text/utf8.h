// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// The character at byte `at` of `text` and the bytes that it takes; 0 bytes: this is not UTF-8 as
/// RFC 3629 has it (overlong forms, surrogates, beyond U+10FFFF, cut off).
struct Utf8Char {
  char32_t code = 0;
  size_t bytes = 0;
};
inline Utf8Char utf8_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> char32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, at < text.size() ? size_t{1} : 0};
  const auto more = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const auto bits = [&](size_t i) { return byte(i) & 0x3F; };
  if (first >= 0xC2 && first <= 0xDF && more(1)) return {(first & 0x1F) << 6 | bits(1), 2};
  if (first >= 0xE0 && first <= 0xEF && more(1) && more(2)) {
    const char32_t code = (first & 0x0F) << 12 | bits(1) << 6 | bits(2);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) return {code, 3};
  }
  if (first >= 0xF0 && first <= 0xF4 && more(1) && more(2) && more(3)) {
    const char32_t code = (first & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
    if (code >= 0x10000 && code <= 0x10FFFF) return {code, 4};
  }
  return {};
}

/// The first byte of `text` that is not part of UTF-8.
inline std::optional<size_t> first_not_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_at(text, at).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::nullopt;
}

inline void append_utf8(char32_t code, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace trireme
