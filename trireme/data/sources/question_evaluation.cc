// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/data/sources/question_source.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

at::Tensor on_host(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.detach().to(at::kCPU, type).contiguous();
}

template <class T>
std::span<const T> row_of(const at::Tensor& matrix, int64_t row) {
  const auto width = static_cast<size_t>(matrix.size(1));
  return {host_data<T>(matrix) + row * matrix.size(1), width};
}

}  // namespace

std::vector<ChunkPrediction> predict_chunks(const MicroBatch& batch, const at::Tensor& start_logits,
                                            const at::Tensor& end_logits,
                                            const at::Tensor& class_logits,
                                            const SpanOptions& options) {
  const int64_t rows = batch.input.size(0);
  check<UsageError>(start_logits.sizes() == batch.input.sizes() &&
                        end_logits.sizes() == batch.input.sizes() && class_logits.dim() == 2 &&
                        class_logits.size(0) == rows && class_logits.size(1) == kAnswerClasses,
                    "predict_chunks: logits are [rows, length], [rows, length] and [rows, {}] of "
                    "the batch",
                    kAnswerClasses);
  check<UsageError>(static_cast<int64_t>(batch.samples.size()) == rows,
                    "predict_chunks: {} rows and {} samples", rows, batch.samples.size());
  const at::Tensor start = on_host(start_logits, at::kFloat), end = on_host(end_logits, at::kFloat),
                   classes = on_host(class_logits, at::kFloat),
                   types = on_host(batch.tensor("token_types"), at::kLong),
                   mask = on_host(batch.tensor("attention_mask"), at::kLong),
                   truth = on_host(batch.tensor("classes"), at::kLong),
                   true_starts = on_host(batch.tensor("start_ids"), at::kLong),
                   true_ends = on_host(batch.tensor("end_ids"), at::kLong);
  std::vector<ChunkPrediction> out;
  for (int64_t row = 0; row < rows; ++row) {
    const auto type = row_of<int64_t>(types, row), seen = row_of<int64_t>(mask, row);
    const auto begin = std::find(type.begin(), type.end(), 1) - type.begin();
    const auto sequence = std::find(seen.begin(), seen.end(), 0) - seen.begin();
    ChunkPrediction made = predict_chunk({.start = row_of<float>(start, row),
                                          .end = row_of<float>(end, row),
                                          .classes = row_of<float>(classes, row),
                                          .chunk_begin = static_cast<int32_t>(begin),
                                          .sequence_end = static_cast<int32_t>(sequence)},
                                         options);
    made.sample = batch.samples[static_cast<size_t>(row)];
    made.truth = AnswerClass(host_data<int64_t>(truth)[row]);
    made.true_start_id = static_cast<int32_t>(host_data<int64_t>(true_starts)[row]);
    made.true_end_id = static_cast<int32_t>(host_data<int64_t>(true_ends)[row]);
    out.push_back(made);
  }
  return out;
}

QuestionEvaluation evaluate_questions(const QuestionSource& held_out,
                                      std::vector<ChunkPrediction> predictions,
                                      const SpanOptions& options) {
  sort_predictions(&predictions);
  QuestionEvaluation out;
  out.chunks = score_chunks(predictions);
  for (size_t first = 0, last; first < predictions.size(); first = last) {
    const int64_t number = held_out.question_of(predictions[first].sample);
    last = first + 1;
    while (last < predictions.size() && held_out.question_of(predictions[last].sample) == number)
      ++last;
    const ChunkPrediction* best =
        best_chunk(std::span(predictions).subspan(first, last - first), options);
    Question question = held_out.read(number);
    const bool has_answer = question.answer_class != AnswerClass::unknown;
    if (has_answer && question.answers.empty())
      question.answers.push_back(question.document.substr(
          question.answer_begin, question.answer_end - question.answer_begin));
    const std::string text =
        best == nullptr ? "" : held_out.text_of(best->sample, best->start_id, best->end_id);
    out.answers.add(squad_score(text, question.answers), has_answer);
  }
  return out;
}

}  // namespace trireme
