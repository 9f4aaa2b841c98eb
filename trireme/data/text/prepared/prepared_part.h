// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/data/text/prepared/part_origin.h"
#include "trireme/data/text/question_chunks.h"

// A part of a file of questions as pieces, as bytes. docs/text.md, "Prepared files", has the
// layout. Pure: no file is touched here.
namespace trireme {

/// What a part knows of its questions without their pieces. Lists have an entry for each question,
/// in the file's order.
struct PartIndex {
  struct Bad {
    int64_t line = 0;  // from 1 in the part
    std::string what;
    TRIREME_FIELDS(line, what)
  };
  bool of_lines = false;                  // Natural Questions: where lines are is known
  std::vector<uint64_t> begins, lengths;  // of their lines, in bytes of the file
  std::vector<int64_t> numbers;           // of their lines, from 1 in the part
  std::vector<AnswerClass> classes;
  std::vector<uint64_t> ends;  // of their records, in bytes of the part
  std::vector<uint64_t> sums;  // XXH3 of their records
  int64_t lines = 0;           // that begin in the part
  int64_t left_out = 0;        // bad samples
  std::vector<Bad> first_left_out;
  TRIREME_FIELDS(of_lines, begins, lengths, numbers, classes, ends, sums, lines, left_out,
                 first_left_out)
};

/// Makes a part, question by question.
class TRIREME_API PartWriter {
 public:
  PartWriter(const PartOrigin& origin, int64_t vocabulary, bool of_lines);
  /// `begin`, `length`, `number`: of the line, where there are lines.
  void add(const QuestionPieces& question, uint64_t begin = 0, uint64_t length = 0,
           int64_t number = 0);
  /// All of it. Nothing can be added any more.
  std::string finish(int64_t lines, int64_t left_out, std::vector<PartIndex::Bad> first_left_out);

 private:
  const PartOrigin origin_;
  const bool wide_;  // pieces of four bytes, not two
  PartIndex index_;
  std::string bytes_;
};

/// Reads a part from bytes that outlive it.
class TRIREME_API PreparedPart {
 public:
  /// Corrupt, beginning with `where`, for what is no part or is damaged; Mismatch for one of
  /// another version. Checks the head and the index, and reads no record.
  PreparedPart(std::string_view bytes, const std::string& where);

  const PartOrigin& origin() const { return origin_; }
  const PartIndex& index() const { return index_; }
  int64_t size() const { return static_cast<int64_t>(index_.classes.size()); }
  /// Question `number` of the part. Corrupt for a record that is damaged, or whose pieces are none
  /// of a vocabulary of that size. Threads: any.
  void read(int64_t number, int64_t vocabulary, QuestionPieces* out) const;

 private:
  std::string_view bytes_;
  std::string where_;
  bool wide_ = false;
  PartOrigin origin_;
  PartIndex index_;
};

/// The version that is written, and the only one that is read.
inline constexpr uint32_t kPartVersion = 1;

namespace detail {
/// The record of a question, and what is in one. decode_record() throws Corrupt or Mismatch for
/// other bytes, and Corrupt for a question that cannot be.
std::string encode_record(const QuestionPieces& question, bool wide);
void decode_record(std::string_view bytes, bool wide, int64_t vocabulary, QuestionPieces* out);
/// Corrupt for an index that a part whose records are bytes [first, end) cannot have.
void check_index(const PartIndex& index, uint64_t first, uint64_t end);
}  // namespace detail

}  // namespace trireme
