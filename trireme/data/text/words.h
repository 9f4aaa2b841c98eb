// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme {

/// A character of a normalized word, and the bytes of the text that it came from.
struct WordChar {
  char32_t code;
  uint32_t begin, end;
};

/// BERT's basic tokenization, as Google's tokenization.py has it and Hugging Face's BasicTokenizer
/// after it: control characters are left out, ideographs and punctuation are words of their own,
/// letters become small, accents go. Keeps its memory between calls.
class WordSplitter {
 public:
  WordSplitter(bool lower_case, bool strip_accents, bool split_cjk)
      : lower_case_(lower_case), strip_accents_(strip_accents), split_cjk_(split_cjk) {}

  /// Calls take(first, last) for each word of `text`; its characters' bytes count from `at`.
  /// Corrupt for what is not UTF-8.
  template <class Take>
  void split(std::string_view text, uint32_t at, const Take& take) {
    word_.clear();
    for (size_t i = 0; i < text.size();) {
      const Step step = next(text, &i, at);
      if (step != Step::inside) flush(take);
      if (step == Step::alone) {
        word_.push_back(char_);
        flush(take);
      } else if (step == Step::inside && !left_out_) {
        word_.push_back(char_);
      }
    }
    flush(take);
  }

 private:
  enum class Step { space, alone, inside };
  Step next(std::string_view text, size_t* i, uint32_t at);
  void normalize();

  template <class Take>
  void flush(const Take& take) {
    if (word_.empty()) return;
    normalize();
    const WordChar *c = word_.data(), *end = c + word_.size();
    while (c != end) {
      const WordChar* first = c++;
      if (!is_punctuation(*first))
        while (c != end && !is_punctuation(*c)) ++c;
      take(first, c);
    }
    word_.clear();
  }
  static bool is_punctuation(const WordChar& c);

  const bool lower_case_, strip_accents_, split_cjk_;
  WordChar char_{};  // that next() read
  bool left_out_ = false;
  std::vector<WordChar> word_, other_;
};

}  // namespace trireme
