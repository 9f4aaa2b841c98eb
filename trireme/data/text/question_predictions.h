// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/data/text/question.h"

// From what a model says of the chunks of documents to answers and figures. Pure.
namespace trireme {

struct SpanOptions {
  int longest_answer = 0;  // pieces; 0: as long as the chunk
  /// Questions have no answer where the model finds the class unknown in each of their chunks.
  /// false: the best span is always taken, as SQuAD 1.1 wants it.
  bool may_be_unknown = true;
};

/// What a model says of one chunk, beside what is right. Ranks gather these as objects
/// (comm/objects.h): each rank those of the samples that it has seen.
struct ChunkPrediction {
  int64_t sample = 0;  // of the held-out source
  /// The best span's logits over those of [CLS] (arXiv:1901.08634), by which the chunks of a
  /// question are compared.
  double score = 0;
  int32_t start_id = -1, end_id = -1;  // of the best span in the row, end behind its last piece
  std::array<float, kAnswerClasses> probabilities{};
  AnswerClass truth = AnswerClass::unknown;
  int32_t true_start_id = -1, true_end_id = -1;      // -1: none
  int32_t likely_start_id = -1, likely_end_id = -1;  // the largest logit of each alone
  TRIREME_FIELDS(sample, score, start_id, end_id, probabilities, truth, true_start_id, true_end_id,
                 likely_start_id, likely_end_id)
  AnswerClass likely_class() const;  // the first of the most probable
};

struct ChunkLogits {
  std::span<const float> start, end;          // of the whole row
  std::span<const float> classes;             // kAnswerClasses
  int32_t chunk_begin = 0, sequence_end = 0;  // of the chunk's pieces with their [SEP]
};
/// The best span of a row and the probabilities of its classes; the first one where several are
/// equally good. Leaves sample, truth and the true ids to the caller. NumericError where a logit is
/// no number.
TRIREME_API ChunkPrediction predict_chunk(const ChunkLogits& logits, const SpanOptions& options);

/// One prediction a sample, in the order of samples: ranks may have computed some of them twice.
TRIREME_API void sort_predictions(std::vector<ChunkPrediction>* predictions);

/// Of a question's chunks the one that answers it; null: it has no answer. Chunks that the model
/// finds unknown come behind all others; among equals the first.
TRIREME_API const ChunkPrediction* best_chunk(std::span<const ChunkPrediction> of_question,
                                              const SpanOptions& options);

/// What the recipe's callbacks count, over all samples and not batch by batch.
struct ChunkScores {
  int64_t total = 0, with_answer = 0;
  double class_accuracy = 0;
  double start_accuracy = 0, end_accuracy = 0;  // of those with an answer
  /// Of each class, its probability against all others; NaN for a class that no sample has.
  std::array<double, kAnswerClasses> average_precision{};
  double map = 0;  // their mean, over the classes that occur
};
/// Predictions as sort_predictions() leaves them.
TRIREME_API ChunkScores score_chunks(std::span<const ChunkPrediction> predictions);

/// The area under precision over recall as scikit-learn's average_precision_score sums it: over
/// the different scores, the largest first. NaN if nothing is right.
TRIREME_API double average_precision(std::span<const float> scores, const std::vector<bool>& right);

}  // namespace trireme
