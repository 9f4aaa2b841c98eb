// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/data/text/squad.h"
#include "trireme/data/text/unicode.h"
#include "trireme/data/text/utf8.h"

namespace trireme {
namespace {

struct Code {
  char32_t code;
};
using Codes = std::vector<Code>;

/// str.lower() of Python, without ASCII punctuation.
Codes lower_without_punctuation(std::string_view text) {
  Codes read, out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_at(text, at);
    check<Corrupt>(c.bytes != 0, "byte {} of an answer is not UTF-8", at + 1);
    read.push_back({c.code});
    at += c.bytes;
  }
  for (auto c = read.cbegin(); c != read.cend(); ++c) {
    unicode::Few lower = unicode::lower(c->code);
    if (c->code == unicode::kCapitalSigma)
      lower = {{unicode::lower_sigma(read.cbegin(), c, read.cend())}, 1};
    for (uint32_t k = 0; k < lower.count; ++k) {
      const char32_t code = lower.codes[k];
      const bool sign = code < 0x80 && (unicode::classes_of(code) & unicode::kPunctuation) != 0;
      if (!sign) out.push_back({code});
    }
  }
  return out;
}

/// str.isspace() of Python.
bool is_space(char32_t c) {
  return (unicode::classes_of(c) & unicode::kSpace) != 0 || c == 0x0B || c == 0x0C ||
         (c >= 0x1C && c <= 0x1F) || c == 0x85;
}

bool in_word(const Code& c) { return (unicode::classes_of(c.code) & unicode::kWord) != 0; }

bool is_article(Codes::const_iterator begin, Codes::const_iterator end) {
  std::string word;
  for (; begin != end && begin->code < 0x80; ++begin) word += static_cast<char>(begin->code);
  return begin == end && (word == "a" || word == "an" || word == "the");
}

/// The words of normalized_answer().
std::vector<std::string> answer_words(std::string_view text) {
  Codes codes = lower_without_punctuation(text);
  for (auto c = codes.begin(); c != codes.end();) {
    if (!in_word(*c)) {
      ++c;
      continue;
    }
    const auto end = std::find_if_not(c, codes.end(), in_word);
    if (is_article(c, end))
      for (auto letter = c; letter != end; ++letter) letter->code = ' ';
    c = end;
  }
  std::vector<std::string> words;
  bool inside = false;
  for (const Code& c : codes) {
    const bool was = std::exchange(inside, !is_space(c.code));
    if (!inside) continue;
    if (!was) words.emplace_back();
    append_utf8(c.code, &words.back());
  }
  return words;
}

AnswerScore score_of(const std::vector<std::string>& predicted,
                     const std::vector<std::string>& right, bool empty_texts_agree) {
  AnswerScore score;
  score.exact = predicted == right ? 1 : 0;
  if (empty_texts_agree && (predicted.empty() || right.empty())) {
    score.f1 = score.exact;
    return score;
  }
  std::map<std::string_view, int64_t> left;
  for (const std::string& word : right) ++left[word];
  int64_t common = 0;
  for (const std::string& word : predicted) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  if (common == 0) return score;
  const double precision = static_cast<double>(common) / static_cast<double>(predicted.size());
  const double recall = static_cast<double>(common) / static_cast<double>(right.size());
  score.f1 = 2 * precision * recall / (precision + recall);
  return score;
}

AnswerScore best_of(std::string_view prediction, const std::vector<std::vector<std::string>>& right,
                    bool empty_texts_agree) {
  const auto predicted = answer_words(prediction);
  AnswerScore best;
  for (const auto& words : right) {
    const AnswerScore score = score_of(predicted, words, empty_texts_agree);
    best.exact = std::max(best.exact, score.exact);
    best.f1 = std::max(best.f1, score.f1);
  }
  return best;
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  std::string out;
  for (const std::string& word : answer_words(text)) out += (out.empty() ? "" : " ") + word;
  return out;
}

AnswerScore squad_score(std::string_view prediction, const std::vector<std::string>& answers) {
  std::vector<std::vector<std::string>> right;
  for (const std::string& answer : answers) {
    auto words = answer_words(answer);
    if (!words.empty()) right.push_back(std::move(words));
  }
  if (right.empty()) right.emplace_back();  // "no answer" is what is right
  return best_of(prediction, right, true);
}

AnswerScore squad_score_v1(std::string_view prediction, const std::vector<std::string>& answers) {
  check<UsageError>(!answers.empty(), "SQuAD 1.1 has no questions without an answer");
  std::vector<std::vector<std::string>> right;
  for (const std::string& answer : answers) right.push_back(answer_words(answer));
  return best_of(prediction, right, false);
}

}  // namespace trireme
