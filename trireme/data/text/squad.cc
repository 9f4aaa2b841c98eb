// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/squad.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/mapped_file.h"
#include "trireme/data/text/utf8.h"
#include "trireme/interop/strict_json.h"

namespace trireme {
namespace {

using nlohmann::json;

constexpr int kDeepestSquad = 16;
constexpr size_t kLargestSquad = size_t{1} << 30;

const json& array_of(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  check<Corrupt>(value.is_array(), "{}: '{}' is not an array", where, key);
  return value;
}

std::string text_of(const json& object, const char* key, const std::string& where) {
  return json_text(json_member(object, key, where), where, key);
}

/// The byte of each character of a text, and its end.
std::vector<uint32_t> bytes_of(std::string_view text) {
  std::vector<uint32_t> bytes;
  for (size_t at = 0; at < text.size(); at += utf8_at(text, at).bytes)
    bytes.push_back(static_cast<uint32_t>(at));
  bytes.push_back(static_cast<uint32_t>(text.size()));
  return bytes;
}

struct Paragraph {
  std::string text;
  std::vector<uint32_t> bytes;
};

/// Throws Corrupt for a bad sample.
Question question_of(const json& qa, const Paragraph& paragraph, const std::string& path) {
  Question out;
  out.id = text_of(qa, "id", path + ": a question");
  out.where = fmt::format("{}: question {}", path, out.id);
  out.question = text_of(qa, "question", out.where);
  check<Corrupt>(!only_spaces(out.question), "{}: the question is empty", out.where);
  check<Corrupt>(!only_spaces(paragraph.text), "{}: the paragraph is empty", out.where);
  out.document = paragraph.text;
  const auto impossible = qa.find("is_impossible");
  if (impossible != qa.end()) {
    check<Corrupt>(impossible->is_boolean(), "{}: is_impossible is neither true nor false",
                   out.where);
    if (impossible->get<bool>()) return out;
  }
  for (const json& answer : array_of(qa, "answers", out.where)) {
    const std::string text = text_of(answer, "text", out.where);
    const int64_t start =
        json_size(json_member(answer, "answer_start", out.where), out.where, "answer_start");
    const bool inside = start < static_cast<int64_t>(paragraph.bytes.size());
    const uint32_t begin = inside ? paragraph.bytes[static_cast<size_t>(start)] : 0;
    check<Corrupt>(
        inside && !text.empty() && std::string_view(paragraph.text).substr(begin).starts_with(text),
        "{}: at character {} the paragraph has another text than the answer", out.where, start);
    if (out.answers.empty()) {
      out.answer_begin = begin;
      out.answer_end = begin + static_cast<uint32_t>(text.size());
    }
    out.answers.push_back(text);
  }
  check<Corrupt>(!out.answers.empty(), "{}: no answer, and is_impossible does not say so",
                 out.where);
  out.answer_class = AnswerClass::short_answer;
  return out;
}

}  // namespace

std::vector<Question> read_squad(const std::string& path, BadSamples* bad) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  check<Corrupt>(text.size() <= kLargestSquad, "{}: {} bytes; more than {} is no file of SQuAD",
                 path, text.size(), kLargestSquad);
  const auto wrong = first_not_utf8(text);
  check<Corrupt>(!wrong, "{}: byte {} is not UTF-8", path, wrong.value_or(0) + 1);
  const json root = parse_strict_json(text, path, kDeepestSquad);
  std::vector<Question> out;
  std::unordered_set<std::string> ids;
  for (const json& article : array_of(root, "data", path))
    for (const json& each : array_of(article, "paragraphs", path + ": an article")) {
      Paragraph paragraph{text_of(each, "context", path + ": a paragraph"), {}};
      paragraph.bytes = bytes_of(paragraph.text);
      for (const json& qa : array_of(each, "qas", path + ": a paragraph")) {
        try {
          Question made = question_of(qa, paragraph, path);
          check<Corrupt>(ids.insert(made.id).second, "{}: an earlier question has this id",
                         made.where);
          out.push_back(std::move(made));
        } catch (const Corrupt& error) {
          bad->found(error.what());
        }
      }
    }
  return out;
}

void SquadScores::add(const AnswerScore& score, bool has_answer) {
  ++total;
  exact += score.exact;
  f1 += score.f1;
  ++(has_answer ? with_answer : without_answer);
  (has_answer ? exact_with_answer : exact_without_answer) += score.exact;
  (has_answer ? f1_with_answer : f1_without_answer) += score.f1;
}

}  // namespace trireme
