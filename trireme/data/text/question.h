// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// What a question asks for; the numbers are the model's classes.
enum class AnswerClass : int8_t { yes, no, short_answer, long_answer, unknown };
inline constexpr int kAnswerClasses = 5;

/// A question, a document, and the part of it that answers.
struct Question {
  std::string where;  // "train.jsonl:7", which begins messages
  std::string id, question, document;
  AnswerClass answer_class = AnswerClass::unknown;
  uint32_t answer_begin = 0, answer_end = 0;  // bytes of the document; equal: unknown
  std::vector<std::string> answers;           // SQuAD: every text that is right
};

/// As an empty question or document is.
inline bool only_spaces(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace trireme
