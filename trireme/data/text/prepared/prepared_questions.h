// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/mapped_file.h"
#include "trireme/data/text/prepared/prepared_part.h"
#include "trireme/data/text/question_file.h"
#include "trireme/data/text/word_piece.h"

namespace trireme {

struct PreparedOptions {
  std::string folder;  // made where it is missing; each file of questions has one in it
  QuestionFileOptions file = {};
  WordPieceOptions word_piece = {};
  bool drop_tags = false;
  uint64_t part_bytes = 0;  // of the file of questions; 0: as PartPlan chooses
};

/// The questions of a file in pieces, in mapped files that all processes of a host share. Held in
/// memory: about 50 bytes a question.
class TRIREME_API PreparedQuestions {
 public:
  struct Part {
    MappedFile file;
    PreparedPart pieces;
  };
  /// All parts of one file of questions, in order.
  PreparedQuestions(const std::string& path, int64_t vocabulary,
                    std::vector<std::unique_ptr<const Part>> parts);

  int64_t size() const { return first_.back(); }
  bool of_lines() const { return parts_.front()->pieces.index().of_lines; }
  int64_t left_out() const;
  /// Where the questions are in their file, for a QuestionFile; without lines for one of SQuAD.
  QuestionLines lines() const;
  /// Corrupt for a question whose record is damaged. Threads: any.
  void read(int64_t number, QuestionPieces* out) const;

 private:
  const std::string path_;
  const int64_t vocabulary_;
  const std::vector<std::unique_ptr<const Part>> parts_;
  std::vector<int64_t> first_;  // question of each part, and behind the last
};

/// The pieces of the questions of `path`, cut and written where they are not yet.
///
/// Any number of processes and threads may call this for one folder at once, each for the same file
/// or for another: each part is made by one of them, which holds a lock meanwhile, and appears
/// whole, by renaming; what a process that was killed had begun is made by the next. A part that is
/// of another file, vocabulary, option or version, or damaged, is made anew, and the log says so.
/// All of it is in the memory of whoever makes it, 64 MiB of text at most. A process goes on with
/// parts that it has mapped when another one replaces them; over NFS not if that is on another
/// host, so jobs that differ take a folder each there.
///
/// Null, after one warning, where the folder cannot be written (and not all of it is there) or the
/// file changes meanwhile: go on without. Null, without a word, where bad samples are to stop the
/// reading and there are some: the reading says which is the first. Throws UsageError for a file
/// that is not there or whose format cannot be told.
TRIREME_API std::shared_ptr<const PreparedQuestions> prepare_questions(
    const std::string& path, const std::shared_ptr<const Vocabulary>& vocabulary,
    const PreparedOptions& options);

/// Of a file in the folder `options.folder`: where its parts are.
TRIREME_API std::string prepared_folder_of(const std::string& path, const std::string& folder);

}  // namespace trireme
