// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/unicode.h"

#include <algorithm>
#include <iterator>

#include "trireme/data/text/unicode_tables.h"

namespace trireme::unicode {
namespace {

template <size_t n>
uint8_t value_of(const FromHere (&table)[n], char32_t code) {
  const auto next = std::upper_bound(std::begin(table), std::end(table), code,
                                     [](char32_t c, const FromHere& row) { return c < row.first; });
  return std::prev(next)->value;  // the first row is of U+0000
}

}  // namespace

uint8_t classes_of(char32_t code) {
  return code < 0x80 ? kAsciiClasses[code] : value_of(kClasses, code);
}

uint8_t combining_class(char32_t code) {
  return code < 0x300 ? 0 : value_of(kCombiningClasses, code);
}

bool is_cjk(char32_t c) {
  const auto in = [&](char32_t first, char32_t last) { return first <= c && c <= last; };
  return in(0x4E00, 0x9FFF) || in(0x3400, 0x4DBF) || in(0x20000, 0x2A6DF) || in(0x2A700, 0x2B73F) ||
         in(0x2B740, 0x2B81F) || in(0x2B820, 0x2CEAF) || in(0xF900, 0xFAFF) || in(0x2F800, 0x2FA1F);
}

Few lower(char32_t code) {
  if (code < 0x80) return {{code >= 'A' && code <= 'Z' ? code + 32 : code}, 1};
  if (code == 0x130) return {{'i', 0x307}, 2};
  const auto row = std::lower_bound(std::begin(kLower), std::end(kLower), code,
                                    [](const Lower& a, char32_t c) { return a.upper < c; });
  return {{row != std::end(kLower) && row->upper == code ? row->lower : code}, 1};
}

Few decomposed(char32_t code) {
  if (code < 0xC0) return {{code}, 1};
  if (code >= 0xAC00 && code <= 0xD7A3) {  // Hangul: chapter 3.12 of the standard
    const char32_t syllable = code - 0xAC00, tail = syllable % 28;
    Few parts{{0x1100 + syllable / 588, 0x1161 + syllable % 588 / 28, 0x11A7 + tail}, 2};
    if (tail != 0) parts.count = 3;
    return parts;
  }
  const auto row = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), code,
                                    [](const Decomposition& a, char32_t c) { return a.whole < c; });
  if (row == std::end(kDecompositions) || row->whole != code) return {{code}, 1};
  Few parts;
  while (parts.count < 4 && row->parts[parts.count] != 0) {
    parts.codes[parts.count] = row->parts[parts.count];
    ++parts.count;
  }
  return parts;
}

}  // namespace trireme::unicode
