// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/base/mapped_file.h"
#include "trireme/data/text/bad_samples.h"
#include "trireme/data/text/question.h"

namespace trireme {

struct NaturalQuestionsOptions {
  OnBadSample bad = OnBadSample::stop;
  size_t longest_line = size_t{64} << 20;  // bytes; the longest document has 2 MiB
  /// A part of the file: the lines that begin in bytes [begin, end). They are numbered from 1.
  size_t begin = 0, end = std::numeric_limits<size_t>::max();
};

/// Google's Natural Questions in the simplified training format: an object a line, whose
/// `document_text` is words with one space between them, by which annotations count. The class is
/// yes or no where the first annotation says so, else short (the first of its short answers), long,
/// or unknown.
///
/// The file is mapped, and one line is held at a time. Bad samples are lines that are too long, not
/// JSON (a file that was cut off), not UTF-8, without what a question needs, with an empty question
/// or document, or with an answer that is not in the document.
class TRIREME_API NaturalQuestionsReader {
 public:
  /// Throws as MappedFile.
  explicit NaturalQuestionsReader(const std::string& path,
                                  const NaturalQuestionsOptions& options = {});

  /// The next question; false at the end of the file. Throws Corrupt for a bad sample, with file
  /// and line, unless they are skipped; the one after it can be read then.
  bool next(Question* out);
  const BadSamples& bad() const { return bad_; }
  int64_t lines() const { return lines_; }  // that were read

  /// Where the question of the last next() is: bytes of the file, and its line's number from 1.
  struct Line {
    size_t begin = 0, length = 0;
    int64_t number = 0;
  };
  const Line& line() const { return line_; }
  /// The same question again. Threads: any, also while another one calls next().
  void read(const Line& line, Question* out) const;
  /// The last question is a bad sample for its user: stops or counts it, as next() does others.
  void leave_out(const std::string& why) { bad_.found(why); }

 private:
  MappedFile file_;
  size_t longest_line_;
  BadSamples bad_;
  size_t at_, end_;
  bool within_line_;  // one that is too long, or begins before the part
  int64_t lines_ = 0;
  Line line_;
};

/// One line. Corrupt, beginning with `where`, for a bad sample.
TRIREME_API void read_natural_question(std::string_view line, const std::string& where,
                                       Question* out);

}  // namespace trireme
