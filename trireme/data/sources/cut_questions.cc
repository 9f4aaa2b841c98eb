// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/cut_questions.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"

namespace trireme {

CutQuestions::CutQuestions(QuestionFile file, std::shared_ptr<const Vocabulary> vocabulary,
                           const WordPieceOptions& word_piece, const ChunkOptions& chunks,
                           int64_t keep_bytes, std::shared_ptr<const PreparedQuestions> prepared)
    : file_(std::move(file)),
      vocabulary_(std::move(vocabulary)),
      word_piece_(word_piece),
      options_(chunks),
      keep_bytes_(static_cast<size_t>(keep_bytes)),
      prepared_(std::move(prepared)) {}

std::shared_ptr<const CutQuestion> CutQuestions::cut(int64_t number) const {
  if (auto found = find(number)) return found;
  auto made = prepared_ ? cut_prepared(number) : nullptr;
  if (!made) made = cut_text(number);
  keep(number, made);
  return made;
}

std::shared_ptr<const CutQuestion> CutQuestions::cut_text(int64_t number) const {
  auto worker = take();
  file_.read(number, &worker->question);
  worker->chunker.cut(worker->question);
  auto made = std::make_shared<const CutQuestion>(worker->chunker.result());
  give_back(std::move(worker));
  return made;
}

std::shared_ptr<const CutQuestion> CutQuestions::cut_prepared(int64_t number) const {
  QuestionPieces pieces;
  try {
    prepared_->read(number, &pieces);
  } catch (const Corrupt& error) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(warned_, true))
      log_warn(
          "questions: {}; it is cut from {} again, as others that are damaged will be: remove "
          "the folder, and it is made anew",
          error.what(), file_.path());
    return nullptr;
  }
  auto made = std::make_shared<CutQuestion>();
  cut_into_chunks(std::move(pieces), options_, made.get());
  return made;
}

std::string CutQuestions::text_of(int64_t number, uint32_t begin, uint32_t end) const {
  auto worker = take();
  file_.read(number, &worker->question);
  worker->chunker.cut(worker->question);
  const auto pieces = worker->chunker.pieces();
  check<UsageError>(begin < end && end <= pieces.size(),
                    "pieces {} to {} of a document that has {}", begin, end, pieces.size());
  const uint32_t from = pieces[begin].begin, to = pieces[end - 1].end;
  std::string text = worker->question.document.substr(from, to - from);
  give_back(std::move(worker));
  return text;
}

// One that threw is not given back: the next is made anew.
std::unique_ptr<CutQuestions::Worker> CutQuestions::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto worker = std::move(idle_.back());
      idle_.pop_back();
      return worker;
    }
  }
  return std::make_unique<Worker>(
      Worker{QuestionChunker(WordPieceTokenizer(vocabulary_, word_piece_), options_), {}});
}

void CutQuestions::give_back(std::unique_ptr<Worker> worker) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(worker));
}

std::shared_ptr<const CutQuestion> CutQuestions::find(int64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = place_.find(number);
  if (found == place_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->question;
}

void CutQuestions::keep(int64_t number, const std::shared_ptr<const CutQuestion>& question) const {
  const size_t bytes = question->bytes();
  if (bytes > keep_bytes_) return;
  const std::lock_guard lock(mutex_);
  if (place_.contains(number)) return;  // another thread has cut it, too
  for (; kept_bytes_ + bytes > keep_bytes_; kept_.pop_back()) {
    kept_bytes_ -= kept_.back().question->bytes();
    place_.erase(kept_.back().number);
  }
  kept_.push_front({number, question});
  place_.emplace(number, kept_.begin());
  kept_bytes_ += bytes;
}

}  // namespace trireme
