// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/data/text/natural_questions.h"
#include "trireme/data/text/prepared/prepared_part.h"
#include "trireme/data/text/question_chunks.h"
#include "trireme/data/text/utf8.h"
#include "trireme/data/text/vocabulary.h"

// Files of text that somebody downloaded.
namespace trireme::fuzz {

inline void must(bool ok, const char* what) {
  if (!ok) throw std::logic_error(what);
}

inline void vocabulary(std::string_view bytes) {
  try {
    const Vocabulary read = Vocabulary::from_text(bytes, "vocab.txt");
    for (int32_t id = 0; id < read.size(); ++id) {
      must(read.id_of(read.piece(id)) == id, "a piece has another number");
      const auto match = read.longest(read.piece(id), false);
      must(match.id == id && match.bytes == read.piece(id).size(), "a piece is not found whole");
    }
  } catch (const Corrupt&) {
  } catch (const UsageError&) {  // no [PAD]
  }
}

/// A line, which is then cut into samples.
inline void natural_question(std::string_view bytes) {
  static const auto kPieces = std::make_shared<Vocabulary>(Vocabulary::from_text(
      "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##a\nt\n##t\nhe\n##he\n.\n<\n>\nP\np\n##i\n", "vocab.txt"));
  Question question;
  try {
    read_natural_question(bytes, "nq.jsonl:1", &question);
  } catch (const Corrupt& error) {
    must(std::string_view(error.what()).starts_with("nq.jsonl:1: "), "a refusal without its place");
    return;
  }
  const std::string& text = question.document;
  must(!first_not_utf8(text) && !first_not_utf8(question.question), "text that is not UTF-8");
  must(question.answer_begin <= question.answer_end && question.answer_end <= text.size(),
       "an answer outside of the document");
  must((question.answer_class == AnswerClass::unknown) ==
           (question.answer_begin == question.answer_end),
       "an answer of no text");
  for (const bool by_sentence : {false, true}) {
    QuestionChunker chunker(WordPieceTokenizer(kPieces), {.max_length = 16,
                                                          .max_question = 4,
                                                          .stride = 5,
                                                          .by_sentence = by_sentence,
                                                          .drop_tags = true});
    try {
      chunker.cut(question);
    } catch (const Corrupt&) {  // no piece
      continue;
    }
    QuestionSample sample;
    for (size_t i = 0; i < chunker.chunks().size(); ++i) {
      chunker.sample(i, &sample);
      const auto size = static_cast<int32_t>(sample.input_ids.size());
      must(size <= 16, "a sample is too long");
      must(sample.start_id >= -1 && sample.end_id < size && sample.start_id <= sample.end_id,
           "an answer outside of the sample");
    }
    must(chunker.choose(1, 0, 0) < chunker.chunks().size(), "no such chunk");
    for (const TextPiece& piece : chunker.pieces())
      must(piece.begin < piece.end && piece.end <= text.size(), "a piece outside of the text");
  }
}

/// A part of prepared questions. Sums keep damage from what is behind them, so the index and the
/// records are also read as they would be if the sums were right.
inline void prepared_part(std::string_view bytes) {
  constexpr int64_t kVocabulary = 1000;
  const auto look_at = [](const QuestionPieces& q) {
    for (const int32_t id : q.document) must(id >= 0 && id < kVocabulary, "no such piece");
    must(q.answer_end <= q.document.size(), "an answer outside of the document");
    for (const bool by_sentence : {false, true}) {
      CutQuestion cut;
      const ChunkOptions options{
          .max_length = 16, .max_question = 4, .stride = 5, .by_sentence = by_sentence};
      cut_into_chunks(q, options, &cut);
      must(!cut.chunks.empty(), "a document without a chunk");
      for (const DocumentChunk& chunk : cut.chunks)
        must(chunk.begin < chunk.end && chunk.end <= cut.document.size() &&
                 chunk.end - chunk.begin + cut.question.size() + kSpecialPieces <= 16,
             "a chunk that cannot be");
    }
  };
  QuestionPieces pieces;
  try {
    const PreparedPart part(bytes, "part");
    for (int64_t i = 0; i < part.size(); ++i) {
      try {
        part.read(i, kVocabulary, &pieces);
        look_at(pieces);
      } catch (const Corrupt&) {
      }
    }
  } catch (const Corrupt& error) {
    must(std::string_view(error.what()).starts_with("part: "), "a refusal without its place");
  } catch (const Mismatch&) {  // another version
  }
  for (const bool wide : {false, true}) {
    try {
      detail::decode_record(bytes, wide, kVocabulary, &pieces);
      look_at(pieces);
    } catch (const Error&) {
    }
  }
  try {
    const auto index = decode<PartIndex>(bytes);
    const uint64_t first = 96, end = index.ends.empty() ? first : index.ends.back();
    detail::check_index(index, first, end);
    for (size_t i = 0; i < index.ends.size(); ++i)
      must(index.ends[i] > (i == 0 ? first : index.ends[i - 1]), "an empty record");
  } catch (const Error&) {
  }
}

}  // namespace trireme::fuzz
