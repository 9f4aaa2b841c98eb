// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/words.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/data/text/unicode.h"
#include "trireme/data/text/utf8.h"

namespace trireme {

bool WordSplitter::is_punctuation(const WordChar& c) {
  return (unicode::classes_of(c.code) & unicode::kPunctuation) != 0;
}

WordSplitter::Step WordSplitter::next(std::string_view text, size_t* i, uint32_t at) {
  const Utf8Char read = utf8_at(text, *i);
  check<Corrupt>(read.bytes != 0, "byte {} of the text is not UTF-8", at + *i);
  char_ = {read.code, at + static_cast<uint32_t>(*i), at + static_cast<uint32_t>(*i + read.bytes)};
  *i += read.bytes;
  const uint8_t classes = unicode::classes_of(read.code);
  left_out_ = (classes & unicode::kControl) != 0;
  if (left_out_) return Step::inside;  // the word goes on behind it
  if ((classes & unicode::kSpace) != 0) return Step::space;
  return split_cjk_ && unicode::is_cjk(read.code) ? Step::alone : Step::inside;
}

void WordSplitter::normalize() {
  const bool ascii =
      std::all_of(word_.begin(), word_.end(), [](const WordChar& c) { return c.code < 0x80; });
  if (ascii) {
    if (lower_case_)
      for (WordChar& c : word_)
        if (c.code >= 'A' && c.code <= 'Z') c.code += 32;
    return;
  }
  const auto put = [&](const WordChar& from, const unicode::Few& codes) {
    for (uint32_t k = 0; k < codes.count; ++k)
      other_.push_back({codes.codes[k], from.begin, from.end});
  };
  if (lower_case_) {
    other_.clear();
    for (auto c = word_.cbegin(); c != word_.cend(); ++c) {
      if (c->code == unicode::kCapitalSigma)
        put(*c, {{unicode::lower_sigma(word_.cbegin(), c, word_.cend())}, 1});
      else
        put(*c, unicode::lower(c->code));
    }
    word_.swap(other_);
  }
  if (!strip_accents_) return;
  other_.clear();
  for (const WordChar& c : word_) put(c, unicode::decomposed(c.code));
  // Marks that follow one another stand in the order of their classes.
  for (auto c = other_.begin(); c != other_.end();) {
    const auto no_mark = [](const WordChar& x) { return unicode::combining_class(x.code) == 0; };
    const auto end = std::find_if(c, other_.end(), no_mark);
    std::stable_sort(c, end, [](const WordChar& a, const WordChar& b) {
      return unicode::combining_class(a.code) < unicode::combining_class(b.code);
    });
    c = end == other_.end() ? end : end + 1;
  }
  std::erase_if(other_, [](const WordChar& c) {
    return (unicode::classes_of(c.code) & unicode::kMark) != 0;
  });
  word_.swap(other_);
}

}  // namespace trireme
