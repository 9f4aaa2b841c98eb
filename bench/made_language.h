// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace trireme::bench {

/// Questions that are made up: 100,000 words in Zipf's distribution with the marks, numbers, names
/// and tags of web pages, 40 kB a document, as Natural Questions has them.
class MadeLanguage {
 public:
  explicit MadeLanguage(uint64_t seed) : random_(seed) {
    std::vector<double> weights;
    for (int i = 0; i < kKnownWords; ++i) {
      words_.push_back(made_up());
      weights.push_back(1 / std::pow(i + 2.7, 1.05));  // Mandelbrot's form of Zipf's law
    }
    rank_ = std::discrete_distribution<int>(weights.begin(), weights.end());
  }

  /// 30,000 pieces, as bert-base's: frequent words whole, and parts for the others.
  std::string vocabulary() const {
    std::vector<std::string> pieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    std::vector<std::string> parts;
    for (char c = 'a'; c <= 'z'; ++c) parts.emplace_back(1, c);
    for (char c = '0'; c <= '9'; ++c) parts.emplace_back(1, c);
    for (const char* onset : kOnsets)
      for (const char* vowel : kVowels) parts.push_back(std::string(onset) + vowel);
    for (const std::string& part : parts) pieces.push_back(part);
    for (const std::string& part : parts) pieces.push_back("##" + part);
    for (const char* sign : {".", ",", "-", "'", "(", ")", "\"", "`", ":", "%"})
      pieces.emplace_back(sign);
    for (const std::string& word : words_)
      if (pieces.size() < 30'000 && word.size() > 3) pieces.push_back(word);
    std::string text;
    std::set<std::string> seen;
    for (const std::string& piece : pieces)
      if (seen.insert(piece).second) text += piece + "\n";
    return text;
  }

  /// A line of Natural Questions, with its end.
  std::string natural_question(int64_t id) {
    std::string document;
    for (int i = 0; i < kWordsPerDocument; ++i) document += (i ? " " : "") + token();
    std::string candidates;
    for (int i = 0; i < 110; ++i)
      candidates += fmt::format("{}{{\"start_token\":{},\"top_level\":{},\"end_token\":{}}}",
                                i ? "," : "", 50 * i, i % 3 ? "true" : "false", 50 * i + 45);
    std::string question;
    for (int i = 0; i < 9; ++i)
      question += (i ? " " : "") + words_[static_cast<size_t>(rank_(random_))];
    const int begin = static_cast<int>(random_() % (kWordsPerDocument - 60));
    return fmt::format(
        "{{\"document_text\":\"{}\",\"long_answer_candidates\":[{}],\"question_text\":\"{}\","
        "\"annotations\":[{{\"yes_no_answer\":\"NONE\","
        "\"long_answer\":{{\"start_token\":{},\"candidate_index\":4,\"end_token\":{}}},\"short_"
        "answers\":[],\"annotation_id\":{}}}],"
        "\"document_url\":\"https://example.org/{}\",\"example_id\":{}}}\n",
        document, candidates, question, begin, begin + 60, id, id, id);
  }

 private:
  static constexpr int kWordsPerDocument = 6500, kKnownWords = 100'000;
  static constexpr const char* kOnsets[] = {"b", "c", "d", "f", "g",  "h",  "l",  "m",  "n",  "p",
                                            "r", "s", "t", "w", "st", "tr", "ch", "th", "pl", "qu"};
  static constexpr const char* kVowels[] = {"a",  "e",  "i",  "o",  "u",  "ea",
                                            "ou", "an", "er", "in", "on", "es"};

  std::string made_up() {
    std::string word;
    for (int n = 1 + static_cast<int>(random_() % 4); n > 0; --n)
      word += std::string(kOnsets[random_() % std::size(kOnsets)]) +
              kVowels[random_() % std::size(kVowels)];
    return word;
  }
  std::string token() {
    const auto kind = random_() % 100;
    if (kind < 12) return std::string(1, ".,,.()-:'%"[random_() % 10]);
    if (kind < 19) return kind % 2 ? "<P>" : "</Td>";
    if (kind < 23) return std::to_string(random_() % 3000);
    std::string word =
        kind < 25 ? made_up() + made_up() : words_[static_cast<size_t>(rank_(random_))];
    if (kind < 35) word[0] = static_cast<char>(word[0] - 32);  // names
    if (kind == 99) word += "\u00e9";
    return word;
  }

  std::mt19937_64 random_;
  std::vector<std::string> words_;
  std::discrete_distribution<int> rank_;
};

}  // namespace trireme::bench
