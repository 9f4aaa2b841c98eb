// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/text/bad_samples.h"
#include "trireme/data/text/natural_questions.h"
#include "trireme/data/text/question.h"

namespace trireme {

enum class QuestionFormat { by_content, natural_questions, squad };

struct QuestionFileOptions {
  QuestionFormat format = QuestionFormat::by_content;
  OnBadSample bad = OnBadSample::stop;
  size_t longest_line = size_t{64} << 20;  // of Natural Questions
};

/// What reading a file of Natural Questions from end to end has found.
struct QuestionLines {
  std::vector<NaturalQuestionsReader::Line> lines;
  std::vector<AnswerClass> classes;  // one for each line
  int64_t left_out = 0;              // bad samples
  std::vector<std::string> first_left_out;
};

/// The format of a file, by its first lines. UsageError where none of them tells.
TRIREME_API QuestionFormat format_of_questions(const std::string& path);

/// The questions of a file by number, in the file's order, bad ones left out.
///
/// Natural Questions is read once from end to end, which finds the bad lines; from then on a
/// question is read where the file is mapped, and what is held is 24 bytes a line. The processes of
/// a host share the mapping. A file of SQuAD is small, and its texts are held, each paragraph once.
class TRIREME_API QuestionFile {
 public:
  /// Throws Corrupt for a question that its reader lets pass, and that yet cannot be used.
  using Check = std::function<void(const Question&)>;
  /// Throws as the readers of both formats, and UsageError for a file whose format cannot be told.
  explicit QuestionFile(const std::string& path, const QuestionFileOptions& options = {},
                        const Check& check = {});
  /// A file of Natural Questions of which another reading has found these lines: it is not read
  /// now.
  static QuestionFile of_lines(const std::string& path, QuestionLines found);
  ~QuestionFile();
  QuestionFile(QuestionFile&&) noexcept;

  int64_t size() const;
  const std::vector<AnswerClass>& classes() const;  // of each question
  /// Threads: any. Corrupt if the file has changed since, so that the question cannot be read.
  void read(int64_t number, Question* out) const;
  QuestionFormat format() const;  // never by_content
  const std::string& path() const;
  const BadSamples& bad() const;
  /// A number that is another for other questions: of their places, lengths and classes, so that
  /// ranks and resumed runs can tell.
  uint64_t identity() const;

 private:
  struct Impl;
  explicit QuestionFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
