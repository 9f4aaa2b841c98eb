// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/sentences.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool ends_sentence(std::string_view word) {
  while (!word.empty() && std::string_view("\"')]}").find(word.back()) != std::string_view::npos)
    word.remove_suffix(1);
  if (word.empty()) return false;
  if (word.back() == '!' || word.back() == '?') return true;
  if (word.back() != '.') return false;
  word.remove_suffix(1);
  if (word.empty()) return true;  // words of Natural Questions: "ends ."
  const bool initials = word.size() == 1 || word[word.size() - 2] == '.';  // "J.", "U.S.", "e.g."
  constexpr std::array<std::string_view, 10> kShort{"Mr", "Mrs", "Ms",  "Dr", "St",
                                                    "Jr", "vs",  "etc", "No", "Prof"};
  return !initials && std::find(kShort.begin(), kShort.end(), word) == kShort.end();
}

}  // namespace

std::vector<uint32_t> sentence_begins(std::string_view text) {
  std::vector<uint32_t> begins{0};
  bool ended = false;
  for (size_t at = 0; (at = text.find_first_not_of(kSpaces, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end;
    // Closing quotes and brackets may be words of their own, and belong to what they close.
    if (ended && (word == "''" || word == ")")) continue;
    const bool small = word[0] >= 'a' && word[0] <= 'z';
    if (ended && !small) begins.push_back(static_cast<uint32_t>(word.data() - text.data()));
    ended = ends_sentence(word);
  }
  return begins;
}

}  // namespace trireme
