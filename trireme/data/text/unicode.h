// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

// What tokenizers ask of characters, as Python 3.11 answers (Unicode 14): the same on every host,
// whatever libraries it has, because a text must have the same pieces on all ranks of a run and
// after it is resumed elsewhere.
namespace trireme::unicode {

enum Class : uint8_t {
  kSpace = 1,        // separates words: Zs, tab, line ends, U+2028, U+2029
  kControl = 2,      // C*, unassigned ones too, and the replacement character: left out of texts
  kPunctuation = 4,  // P*, and every ASCII character that is no letter, digit, space or control
  kMark = 8,         // Mn: accents and the like
  kCased = 16,       // not kCaseIgnorable
  kCaseIgnorable = 32,
  kWord = 64  // \w of regular expressions: letters, digits, the low line
};

/// Some of Class.
uint8_t classes_of(char32_t code);
/// Of the canonical order of marks; 0: no mark.
uint8_t combining_class(char32_t code);
/// The blocks of ideographs that BERT gives a word each.
bool is_cjk(char32_t code);

/// Small letters of one character, which are two for U+0130. A capital sigma needs its
/// neighbours: lower_sigma().
struct Few {
  std::array<char32_t, 4> codes{};
  uint32_t count = 0;
};
Few lower(char32_t code);
inline constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;
/// Canonical (NFD), without the order of marks.
Few decomposed(char32_t code);

/// Of the capital sigma `at`: final behind a cased letter and before none. Of a range of what has a
/// `code`.
template <class It>
char32_t lower_sigma(It word_begin, It at, It word_end) {
  const auto ignorable = [](const auto& c) { return (classes_of(c.code) & kCaseIgnorable) != 0; };
  const auto cased = [](const auto& c) { return (classes_of(c.code) & kCased) != 0; };
  It before = at;
  while (before != word_begin && ignorable(*std::prev(before))) --before;
  if (before == word_begin || !cased(*std::prev(before))) return kSmallSigma;
  It after = std::next(at);
  while (after != word_end && ignorable(*after)) ++after;
  return after == word_end || !cased(*after) ? kFinalSigma : kSmallSigma;
}

}  // namespace trireme::unicode
