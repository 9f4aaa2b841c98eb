// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/question_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/mapped_file.h"
#include "trireme/base/philox.h"
#include "trireme/data/text/squad.h"

namespace trireme {
namespace {

using nlohmann::json;

/// Reads an object until a member of its root tells the format.
class FormatParser {
 public:
  QuestionFormat found() const { return found_; }

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(json::number_integer_t) { return true; }
  bool number_unsigned(json::number_unsigned_t) { return true; }
  bool number_float(json::number_float_t, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(json::binary_t&) { return true; }
  bool start_object(size_t) { return ++depth_ <= kDeepest; }
  bool start_array(size_t) { return ++depth_ <= kDeepest; }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    if (depth_ != 1) return true;
    if (name == "data") found_ = QuestionFormat::squad;
    for (const char* ours : {"document_text", "question_text", "annotations", "example_id"})
      if (name == ours) found_ = QuestionFormat::natural_questions;
    return found_ == QuestionFormat::by_content;
  }
  bool parse_error(size_t, const std::string&, const json::exception&) { return false; }

 private:
  static constexpr int kDeepest = 64;
  bool leave() {
    --depth_;
    return true;
  }
  int depth_ = 0;
  QuestionFormat found_ = QuestionFormat::by_content;
};

}  // namespace

// The format of the first of a few lines that tells. A line may be damaged, or much too long.
QuestionFormat format_of_questions(const std::string& path) {
  constexpr int kLines = 16;
  constexpr size_t kLook = size_t{1} << 20;  // bytes of a line
  const MappedFile file(path);
  std::string_view left(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (int i = 0; i < kLines && !left.empty(); ++i) {
    const std::string_view head = left.substr(0, kLook);
    FormatParser parser;
    json::sax_parse(head.begin(), head.end(), &parser);
    if (parser.found() != QuestionFormat::by_content) return parser.found();
    const size_t end = left.find('\n');
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
  }
  fail<UsageError>(
      "{}: neither lines of Natural Questions (objects with document_text) nor a file of SQuAD (an "
      "object with data): give the format if its beginning is damaged",
      path);
}

struct QuestionFile::Impl {
  Impl(const std::string& of, const QuestionFileOptions& options)
      : path(of), format(options.format), bad(options.bad) {}

  void index_lines(const QuestionFileOptions& options, const Check& check) {
    reader.emplace(
        path, NaturalQuestionsOptions{.bad = options.bad, .longest_line = options.longest_line});
    Question question;
    while (reader->next(&question)) {
      try {
        if (check) check(question);
      } catch (const Corrupt& error) {
        reader->leave_out(error.what());
        continue;
      }
      lines.push_back(reader->line());
      classes.push_back(question.answer_class);
    }
    bad.add(reader->bad().count(), reader->bad().first());
    identify_lines();
  }

  void take_lines(QuestionLines found) {
    reader.emplace(path, NaturalQuestionsOptions{});
    lines = std::move(found.lines);
    classes = std::move(found.classes);
    bad.add(found.left_out, found.first_left_out);
    identify_lines();
  }

  void identify_lines() {
    for (size_t i = 0; i < lines.size(); ++i)
      identity = stable_hash({identity, uint64_t{lines[i].begin}, uint64_t{lines[i].length},
                              static_cast<uint64_t>(classes[i])});
  }

  void hold_questions(const Check& check) {
    std::vector<Question> all = read_squad(path, &bad);
    for (Question& question : all) {
      try {
        if (check) check(question);
      } catch (const Corrupt& error) {
        bad.found(error.what());
        continue;
      }
      if (documents.empty() || documents.back() != question.document)
        documents.push_back(question.document);
      question.document = std::string();
      document_of.push_back(documents.size() - 1);
      classes.push_back(question.answer_class);
      identity = stable_hash({identity, stable_hash(question.id), uint64_t{documents.back().size()},
                              uint64_t{question.answer_begin}, uint64_t{question.answer_end}});
      questions.push_back(std::move(question));
    }
  }

  const std::string path;
  QuestionFormat format;
  BadSamples bad;
  uint64_t identity = stable_hash("questions");
  std::vector<AnswerClass> classes;
  std::optional<NaturalQuestionsReader> reader;
  std::vector<NaturalQuestionsReader::Line> lines;
  std::vector<Question> questions;  // without their documents
  std::vector<std::string> documents;
  std::vector<size_t> document_of;
};

QuestionFile::QuestionFile(const std::string& path, const QuestionFileOptions& options,
                           const Check& check)
    : impl_(std::make_unique<Impl>(path, options)) {
  if (impl_->format == QuestionFormat::by_content) impl_->format = format_of_questions(path);
  if (impl_->format == QuestionFormat::squad)
    impl_->hold_questions(check);
  else
    impl_->index_lines(options, check);
}
QuestionFile::QuestionFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
QuestionFile QuestionFile::of_lines(const std::string& path, QuestionLines found) {
  check<UsageError>(found.lines.size() == found.classes.size(),
                    "{}: {} lines, and classes of {} questions", path, found.lines.size(),
                    found.classes.size());
  auto impl = std::make_unique<Impl>(
      path, QuestionFileOptions{.format = QuestionFormat::natural_questions});
  impl->take_lines(std::move(found));
  return QuestionFile(std::move(impl));
}
QuestionFile::~QuestionFile() = default;
QuestionFile::QuestionFile(QuestionFile&&) noexcept = default;

int64_t QuestionFile::size() const { return static_cast<int64_t>(impl_->classes.size()); }
const std::vector<AnswerClass>& QuestionFile::classes() const { return impl_->classes; }
QuestionFormat QuestionFile::format() const { return impl_->format; }
const std::string& QuestionFile::path() const { return impl_->path; }
const BadSamples& QuestionFile::bad() const { return impl_->bad; }
uint64_t QuestionFile::identity() const { return impl_->identity; }

void QuestionFile::read(int64_t number, Question* out) const {
  check<UsageError>(number >= 0 && number < size(), "{}: there is no question {}: there are {}",
                    path(), number, size());
  const auto i = static_cast<size_t>(number);
  if (impl_->reader) return impl_->reader->read(impl_->lines[i], out);
  *out = impl_->questions[i];
  out->document = impl_->documents[impl_->document_of[i]];
}

}  // namespace trireme
