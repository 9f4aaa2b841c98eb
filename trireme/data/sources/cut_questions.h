// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/data/text/prepared/prepared_questions.h"
#include "trireme/data/text/question_chunks.h"
#include "trireme/data/text/question_file.h"

namespace trireme {

/// The questions of a file, cut into pieces and chunks when they are asked for. Threads: any; each
/// cuts with a tokenizer of its own, and those used last are kept. Pieces that are prepared are
/// read; one whose record is damaged is cut again, and the first of them is a warning.
class CutQuestions {
 public:
  CutQuestions(QuestionFile file, std::shared_ptr<const Vocabulary> vocabulary,
               const WordPieceOptions& word_piece, const ChunkOptions& chunks, int64_t keep_bytes,
               std::shared_ptr<const PreparedQuestions> prepared = nullptr);

  const QuestionFile& file() const { return file_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const ChunkOptions& options() const { return options_; }

  std::shared_ptr<const CutQuestion> cut(int64_t number) const;
  /// The document's text that pieces [begin, end) of it stand for.
  std::string text_of(int64_t number, uint32_t begin, uint32_t end) const;

 private:
  struct Worker {
    QuestionChunker chunker;
    Question question;
  };
  struct Kept {
    int64_t number;
    std::shared_ptr<const CutQuestion> question;
  };
  std::shared_ptr<const CutQuestion> cut_text(int64_t number) const;
  /// Null: its record is damaged.
  std::shared_ptr<const CutQuestion> cut_prepared(int64_t number) const;
  std::unique_ptr<Worker> take() const;
  void give_back(std::unique_ptr<Worker> worker) const;
  std::shared_ptr<const CutQuestion> find(int64_t number) const;
  void keep(int64_t number, const std::shared_ptr<const CutQuestion>& question) const;

  const QuestionFile file_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const WordPieceOptions word_piece_;
  const ChunkOptions options_;
  const size_t keep_bytes_;
  const std::shared_ptr<const PreparedQuestions> prepared_;  // null: there are none

  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::unique_ptr<Worker>> idle_;
  mutable std::list<Kept> kept_;  // those used last come first
  mutable std::unordered_map<int64_t, std::list<Kept>::iterator> place_;
  mutable size_t kept_bytes_ = 0;
  mutable bool warned_ = false;
};

}  // namespace trireme
