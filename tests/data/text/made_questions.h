// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

// Files of questions as those that people download, made of the words w0 … w99.
namespace trireme::made_questions {

inline std::string words(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += (text.empty() ? "w" : " w") + std::to_string(i);
  return text;
}

/// [PAD] [UNK] [CLS] [SEP] are 0 to 3, w0 is 4.
inline std::string vocabulary_text() {
  std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n";
  for (int i = 0; i < 100; ++i) text += "w" + std::to_string(i) + "\n";
  return text + "<\n>\n/\n.\np\n";
}

struct Annotation {
  std::string yes_no = "NONE";
  int begin = -1, end = -1;  // words of the long answer; -1: there is none
  int short_begin = -1, short_end = -1;
};

/// A line of Natural Questions, without its end.
inline std::string natural_question(int id, const std::string& document, const Annotation& a = {},
                                    const std::string& question = "w90 w91") {
  const auto member = [](const char* name, int value) {
    return std::string("\"") + name + "\":" + std::to_string(value);
  };
  const std::string shorts = a.short_begin < 0 ? ""
                                               : "{" + member("start_token", a.short_begin) + "," +
                                                     member("end_token", a.short_end) + "}";
  return "{\"document_text\":\"" + document + "\",\"question_text\":\"" + question +
         "\",\"annotations\":[{\"yes_no_answer\":\"" + a.yes_no + "\",\"long_answer\":{" +
         member("start_token", a.begin) + "," + member("candidate_index", a.begin < 0 ? -1 : 0) +
         "," + member("end_token", a.end) + "},\"short_answers\":[" + shorts + "]}]," +
         member("example_id", id) + "}";
}

inline std::string squad_question(const std::string& id, const std::string& answer, int start) {
  const std::string answers = answer.empty() ? ""
                                             : R"({"text": ")" + answer + R"(", "answer_start": )" +
                                                   std::to_string(start) + "}";
  return R"({"id": ")" + id + R"(", "question": "w90 w91", "answers": [)" + answers +
         R"(], "is_impossible": )" + (answer.empty() ? "true" : "false") + "}";
}

/// A file of SQuAD 2.0 with one paragraph.
inline std::string squad(const std::string& context, const std::string& questions) {
  return R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": ")" + context +
         R"(", "qas": [)" + questions + "]}]}]}";
}

/// Memory of this process that is no file's, in bytes.
inline int64_t memory_in_use() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return 1024 * std::atoll(line.c_str() + 8);
  return -1;
}

}  // namespace trireme::made_questions
