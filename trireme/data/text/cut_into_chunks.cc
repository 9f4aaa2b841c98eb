// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "trireme/data/text/question_chunks.h"

namespace trireme {
namespace {

/// Adds chunks of a document to a question whose pieces are there.
class Cutter {
 public:
  Cutter(const QuestionPieces& pieces, const ChunkOptions& options, CutQuestion* out)
      : pieces_(pieces),
        out_(*out),
        size_(static_cast<uint32_t>(out->document.size())),
        room_(static_cast<uint32_t>(options.max_length - kSpecialPieces) -
              static_cast<uint32_t>(out->question.size())) {}

  void by_stride(uint32_t stride) {
    for (uint64_t begin = 0; begin < size_; begin += stride)
      add(static_cast<uint32_t>(begin),
          static_cast<uint32_t>(std::min<uint64_t>(size_, begin + room_)));
  }

  void by_sentence() {
    // Parts that stay together: sentences, and those that are too long in as many as they need.
    std::vector<uint32_t> begins;
    const auto add_part = [&](uint32_t begin, uint32_t end) {
      for (; begin < end; begin += std::min(room_, end - begin)) begins.push_back(begin);
    };
    uint32_t last = 0;
    for (const uint32_t begin : pieces_.sentences) {
      add_part(last, begin);
      last = begin;
    }
    add_part(last, size_);
    begins.push_back(size_);
    // A chunk is emitted when the next part does not fit, and then loses parts in front until it
    // does.
    size_t first = 0;
    for (size_t part = 0; part + 1 < begins.size(); ++part)
      while (begins[part + 1] - begins[first] > room_) {
        add(begins[first], begins[part]);
        ++first;
      }
    add(begins[first], size_);
  }

 private:
  void add(uint32_t begin, uint32_t end) {
    DocumentChunk chunk{begin, end};
    if (pieces_.answer_class != AnswerClass::unknown && begin <= pieces_.answer_begin &&
        pieces_.answer_end <= end) {
      const auto before =
          static_cast<int32_t>(out_.question.size()) + 2 - static_cast<int32_t>(begin);
      chunk.answer_class = pieces_.answer_class;
      chunk.start_id = static_cast<int32_t>(pieces_.answer_begin) + before;
      chunk.end_id = static_cast<int32_t>(pieces_.answer_end) + before;
    }
    out_.chunks.push_back(chunk);
  }

  const QuestionPieces& pieces_;
  CutQuestion& out_;
  const uint32_t size_, room_;  // of the document, and of a chunk
};

}  // namespace

void cut_into_chunks(QuestionPieces question, const ChunkOptions& options, CutQuestion* out) {
  out->id = std::move(question.id);
  out->question = std::move(question.question);
  out->document = std::move(question.document);
  out->chunks.clear();
  if (out->question.size() > static_cast<size_t>(options.max_question))
    out->question.resize(static_cast<size_t>(options.max_question));
  Cutter cutter(question, options, out);
  if (options.by_sentence)
    cutter.by_sentence();
  else
    cutter.by_stride(static_cast<uint32_t>(options.stride));
}

}  // namespace trireme
