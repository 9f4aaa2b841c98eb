// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/text/question.h"
#include "trireme/data/text/word_piece.h"

namespace trireme {

/// Of a sequence beside its question and its chunk: [CLS], [SEP], [SEP].
inline constexpr int kSpecialPieces = 3;

struct ChunkOptions {
  int max_length = 384;      // pieces of a sequence: [CLS] question [SEP] chunk [SEP]
  int max_question = 64;     // pieces; the rest of a longer question is left out
  int stride = 128;          // pieces from one chunk to the next
  bool by_sentence = false;  // chunks are whole sentences, as many as fit; stride is not used
  bool drop_tags = false;    // words that begin like <P>: of Natural Questions' documents
  /// How much more often a chunk of this class is chosen.
  std::array<double, kAnswerClasses> weights{1, 1, 1, 1, 1e-3};
};

/// A question as pieces: what chunks of any size are made of, without the text.
struct QuestionPieces {
  std::string id;
  std::vector<int32_t> question, document;  // all of both
  AnswerClass answer_class = AnswerClass::unknown;
  uint32_t answer_begin = 0, answer_end = 0;  // of the document's pieces; equal: unknown
  std::vector<uint32_t> sentences;            // the pieces with which sentences begin, ascending
};

/// A part of a document that fits in a sequence. One that does not hold the whole answer has the
/// class unknown and no positions.
struct DocumentChunk {
  uint32_t begin, end;  // of the document's pieces
  AnswerClass answer_class = AnswerClass::unknown;
  int32_t start_id = -1, end_id = -1;  // of the answer in the sequence, end behind its last piece
};

/// What a model is shown and asked.
struct QuestionSample {
  std::string id;
  std::vector<int32_t> input_ids;
  int32_t question_pieces = 0;
  int32_t start_id = -1, end_id = -1;            // -1: none, ignored by the loss
  float start_position = -1, end_position = -1;  // the same over max_length; -1: none
  AnswerClass answer_class = AnswerClass::unknown;
};

/// A question cut into chunks, without its text: all that its samples are made of.
struct TRIREME_API CutQuestion {
  std::string id;
  std::vector<int32_t> question, document;  // pieces
  std::vector<DocumentChunk> chunks;
  size_t bytes() const;  // of memory

  /// A chunk by weight: the same for the same seed, epoch and number of the sample, on any rank.
  size_t choose(const ChunkOptions& options, uint64_t seed, int64_t epoch, int64_t sample) const;
  void sample(size_t chunk, const ChunkOptions& options, const Vocabulary& vocabulary,
              QuestionSample* out) const;
};

/// The chunks of a question. `question.sentences` is read where chunks are by sentence alone.
TRIREME_API void cut_into_chunks(QuestionPieces question, const ChunkOptions& options,
                                 CutQuestion* out);

/// Cuts questions. Keeps its memory for the next one; one thread at a time.
class TRIREME_API QuestionChunker {
 public:
  /// UsageError for options that leave no room for a document or text between chunks, or weights
  /// that are negative, not finite, or all zero.
  QuestionChunker(WordPieceTokenizer tokenizer, const ChunkOptions& options);

  /// Corrupt, beginning with question.where, for a question or a document without a piece, an
  /// answer that has none, and what is not UTF-8.
  void cut(const Question& question);
  /// The pieces alone, sentences included: they do not depend on the sizes of chunks. Throws as
  /// cut().
  void encode(const Question& question, QuestionPieces* out);
  /// Throws what cut() would, and costs next to nothing for a good question: it looks at the
  /// answer's pieces, or at the document's first ones. For UTF-8, as readers of files give it.
  void check_cuttable(const Question& question);

  // Of the question that was cut last.
  const CutQuestion& result() const { return cut_; }
  std::span<const DocumentChunk> chunks() const { return cut_.chunks; }
  size_t choose(uint64_t seed, int64_t epoch, int64_t sample) const {
    return cut_.choose(options_, seed, epoch, sample);
  }
  void sample(size_t chunk, QuestionSample* out) const {
    cut_.sample(chunk, options_, tokenizer_.vocabulary(), out);
  }
  /// Where the pieces are in the document.
  std::span<const TextPiece> pieces() const { return document_; }
  const WordPieceTokenizer& tokenizer() const { return tokenizer_; }

 private:
  void encode_document(std::string_view text);
  bool surely_cuttable(const Question& question);
  void encode(const Question& question, bool with_sentences, QuestionPieces* out);

  WordPieceTokenizer tokenizer_;
  const ChunkOptions options_;
  std::vector<TextPiece> question_, document_;
  CutQuestion cut_;
};

/// Samples as rows of one length. Padding is not seen (mask 0) and has the type 0.
struct QuestionBatch {
  int64_t rows = 0, length = 0;
  std::vector<int64_t> input_ids, token_types,
      attention_mask;                                // rows × length; type 1: the chunk
  std::vector<int64_t> start_ids, end_ids, classes;  // a row each
  std::vector<float> start_positions, end_positions;
  std::vector<std::string> ids;
};
TRIREME_API QuestionBatch collate(std::span<const QuestionSample> samples, int32_t padding);

/// Which samples train and which validate: of each class `fraction`, rounded up (but at least one
/// trains), chosen by `seed`. In order.
struct StratifiedSplit {
  std::vector<int64_t> train, validation;
};
TRIREME_API StratifiedSplit stratified_split(std::span<const AnswerClass> classes, double fraction,
                                             uint64_t seed);

}  // namespace trireme
