// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/question_predictions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trireme/base/check.h"

namespace trireme {
namespace {

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

bool all_numbers(std::span<const float> logits) {
  return std::none_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
}

std::array<float, kAnswerClasses> softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::array<double, kAnswerClasses> powers{};
  std::transform(logits.begin(), logits.end(), powers.begin(),
                 [&](float x) { return std::exp(x - most); });
  const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
  std::array<float, kAnswerClasses> out{};
  std::transform(powers.begin(), powers.end(), out.begin(),
                 [&](double p) { return static_cast<float>(p / sum); });
  return out;
}

}  // namespace

AnswerClass ChunkPrediction::likely_class() const { return AnswerClass(largest(probabilities)); }

ChunkPrediction predict_chunk(const ChunkLogits& logits, const SpanOptions& options) {
  check<UsageError>(options.longest_answer >= 0, "longest_answer is {}: pieces, or 0 for any",
                    options.longest_answer);
  const int32_t last = logits.sequence_end - 1;  // [SEP]
  check<UsageError>(
      logits.classes.size() == kAnswerClasses && logits.start.size() == logits.end.size() &&
          logits.chunk_begin > 0 && logits.chunk_begin < last &&
          static_cast<size_t>(last) < logits.start.size(),
      "logits of {} starts, {} ends and {} classes for a chunk of pieces {} to {}",
      logits.start.size(), logits.end.size(), logits.classes.size(), logits.chunk_begin, last);
  const auto row = static_cast<size_t>(logits.sequence_end);
  const auto start = logits.start.first(row), end = logits.end.first(row);
  check<NumericError>(all_numbers(start) && all_numbers(end) && all_numbers(logits.classes),
                      "the logits of a chunk hold a NaN");
  ChunkPrediction out;
  out.probabilities = softmax(logits.classes);
  out.likely_start_id = largest(start);
  out.likely_end_id = largest(end);
  const int32_t longest = options.longest_answer > 0 ? options.longest_answer : last;
  const auto at = [](std::span<const float> of, int32_t i) {
    return double{of[static_cast<size_t>(i)]};
  };
  double best = -std::numeric_limits<double>::infinity();
  int32_t first = logits.chunk_begin;  // the best start before the end that is looked at
  for (int32_t e = logits.chunk_begin + 1; e <= last; ++e) {
    if (e - first > longest) {
      first = e - longest;
      for (int32_t s = first + 1; s < e; ++s)
        if (at(start, s) > at(start, first)) first = s;
    } else if (at(start, e - 1) > at(start, first)) {
      first = e - 1;
    }
    const double sum = at(start, first) + at(end, e);
    if (out.start_id >= 0 && !(sum > best)) continue;
    best = sum;
    out.start_id = first;
    out.end_id = e;
  }
  out.score = best - (at(start, 0) + at(end, 0));
  check<NumericError>(!std::isnan(out.score), "the logits of a chunk are infinite");
  return out;
}

void sort_predictions(std::vector<ChunkPrediction>* predictions) {
  const auto by_sample = [](const ChunkPrediction& a, const ChunkPrediction& b) {
    return a.sample < b.sample;
  };
  std::stable_sort(predictions->begin(), predictions->end(), by_sample);
  const auto same = [](const ChunkPrediction& a, const ChunkPrediction& b) {
    return a.sample == b.sample;
  };
  predictions->erase(std::unique(predictions->begin(), predictions->end(), same),
                     predictions->end());
}

const ChunkPrediction* best_chunk(std::span<const ChunkPrediction> of_question,
                                  const SpanOptions& options) {
  const ChunkPrediction* best = nullptr;
  const auto answers = [](const ChunkPrediction& p) {
    return p.likely_class() != AnswerClass::unknown;
  };
  for (const ChunkPrediction& p : of_question) {
    if (options.may_be_unknown && !answers(p)) continue;
    const bool better =
        best == nullptr || (answers(p) == answers(*best) ? p.score > best->score : answers(p));
    if (better) best = &p;
  }
  return best;
}

double average_precision(std::span<const float> scores, const std::vector<bool>& right) {
  check<UsageError>(scores.size() == right.size(), "{} scores and {} labels", scores.size(),
                    right.size());
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const auto all = static_cast<double>(std::count(right.begin(), right.end(), true));
  if (all == 0) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0, found = 0;
  for (size_t i = 0; i < order.size();) {
    double here = 0;
    const float score = scores[order[i]];
    for (; i < order.size() && scores[order[i]] == score; ++i) here += right[order[i]] ? 1 : 0;
    found += here;
    sum += here / all * (found / static_cast<double>(i));
  }
  return sum;
}

ChunkScores score_chunks(std::span<const ChunkPrediction> predictions) {
  ChunkScores out;
  double classes = 0, starts = 0, ends = 0;
  for (const ChunkPrediction& p : predictions) {
    ++out.total;
    classes += p.likely_class() == p.truth ? 1 : 0;
    if (p.true_start_id < 0) continue;
    ++out.with_answer;
    starts += p.likely_start_id == p.true_start_id ? 1 : 0;
    ends += p.likely_end_id == p.true_end_id ? 1 : 0;
  }
  out.class_accuracy = classes / static_cast<double>(out.total);
  out.start_accuracy = starts / static_cast<double>(out.with_answer);
  out.end_accuracy = ends / static_cast<double>(out.with_answer);
  double sum = 0;
  int occur = 0;
  for (size_t c = 0; c < kAnswerClasses; ++c) {
    std::vector<float> scores;
    std::vector<bool> right;
    for (const ChunkPrediction& p : predictions) {
      scores.push_back(p.probabilities[c]);
      right.push_back(p.truth == AnswerClass(c));
    }
    const double precision = out.average_precision[c] = average_precision(scores, right);
    if (std::isnan(precision)) continue;
    sum += precision;
    ++occur;
  }
  out.map = sum / occur;
  return out;
}

}  // namespace trireme
