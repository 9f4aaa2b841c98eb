// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/question_predictions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/data/text/errors.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/lines.h"

namespace trireme::question_predictions_test {
namespace {

using trireme::testing::Command;
using trireme::testing::source_path;

constexpr std::array<float, 5> kShort{0, 0, 3, 0, 0};

TEST(data_text_question_predictions, the_best_span_is_the_best_of_all_whatever_the_sizes) {
  std::mt19937 random(1);
  for (int length = 4; length <= 12; ++length)
    for (int begin = 1; begin < length - 1; ++begin)
      for (int end = begin + 2; end <= length; ++end)
        for (int longest = 0; longest <= 4; ++longest)
          for (int round = 0; round < 3; ++round) {
            std::vector<float> starts, ends;
            for (int i = 0; i < length; ++i) {  // few values, so that many spans are equal
              starts.push_back(static_cast<float>(random() % 4));
              ends.push_back(static_cast<float>(random() % 4));
            }
            const ChunkPrediction got = predict_chunk({.start = starts,
                                                       .end = ends,
                                                       .classes = kShort,
                                                       .chunk_begin = begin,
                                                       .sequence_end = end},
                                                      {.longest_answer = longest});
            const auto sum = [&](int s, int e) {
              return starts[static_cast<size_t>(s)] + ends[static_cast<size_t>(e)];
            };
            float best = -1;
            int first = -1, last = -1;
            for (int e = begin + 1; e < end; ++e)  // the last one is [SEP]
              for (int s = begin; s < e; ++s)
                if ((longest == 0 || e - s <= longest) && sum(s, e) > best) {
                  best = sum(s, e);
                  first = s;
                  last = e;
                }
            ASSERT_EQ(got.start_id, first)
                << length << " " << begin << " " << end << " " << longest;
            ASSERT_EQ(got.end_id, last);
            ASSERT_EQ(got.score, best - starts[0] - ends[0]);
          }
}

TEST(data_text_question_predictions, classes_are_probabilities_and_ids_the_largest_logits) {
  const std::vector<float> starts{0, 0, 1, 5, 9}, ends{7, 0, 2, 0, 9}, classes{1, 0, 2, 2, -100};
  const ChunkPrediction p = predict_chunk(
      {.start = starts, .end = ends, .classes = classes, .chunk_begin = 1, .sequence_end = 4}, {});
  EXPECT_EQ(p.likely_start_id, 3);  // what is behind the sequence is padding
  EXPECT_EQ(p.likely_end_id, 0);
  EXPECT_EQ(p.likely_class(), AnswerClass::short_answer);  // the first of two
  double sum = 0;
  for (const float x : p.probabilities) sum += x;
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(p.probabilities[0] / p.probabilities[2], std::exp(-1.0), 1e-6);
}

TEST(data_text_question_predictions, logits_that_are_no_numbers_or_do_not_fit_are_refused) {
  const float nan = std::nanf(""), infinite = std::numeric_limits<float>::infinity();
  const auto with = [](std::vector<float> starts, std::vector<float> classes, int begin, int end,
                       SpanOptions options = {}) {
    const std::vector<float> ends(5);
    return predict_chunk({.start = starts,
                          .end = ends,
                          .classes = classes,
                          .chunk_begin = begin,
                          .sequence_end = end},
                         options);
  };
  const std::vector<float> good(5);
  EXPECT_ERROR(with({0, 0, nan, 0, 0}, good, 1, 5), NumericError, "NaN");
  EXPECT_ERROR(with(good, {0, nan, 0, 0, 0}, 1, 5), NumericError, "NaN");
  EXPECT_ERROR(with({infinite, 0, infinite, 0, 0}, good, 1, 5), NumericError, "infinite");
  EXPECT_EQ(with({0, 0, 0, 0, nan}, good, 1, 4).start_id, 1);  // padding
  EXPECT_ERROR(with(good, {0, 0}, 1, 5), UsageError, "2 classes");
  EXPECT_ERROR(with({0}, good, 1, 5), UsageError, "logits of 1 starts, 5 ends");
  EXPECT_ERROR(with(good, good, 3, 4), UsageError, "a chunk of pieces 3 to 3");
  EXPECT_ERROR(with(good, good, 1, 6), UsageError, "a chunk of pieces 1 to 5");
  EXPECT_ERROR(with(good, good, 0, 5), UsageError, "a chunk of pieces 0");
  EXPECT_ERROR(with(good, good, 1, 5, {.longest_answer = -1}), UsageError, "longest_answer is -1");
  EXPECT_EQ(with({0, -infinite, -infinite, 0, 0}, good, 1, 3).end_id, 2) << "no span is better";
}

ChunkPrediction made(int64_t sample, double score, AnswerClass likely,
                     AnswerClass truth = AnswerClass::unknown) {
  ChunkPrediction p;
  p.sample = sample;
  p.score = score;
  p.probabilities[static_cast<size_t>(likely)] = 1;
  p.truth = truth;
  return p;
}

TEST(data_text_question_predictions, a_question_is_answered_by_the_chunk_with_the_best_score) {
  using enum AnswerClass;
  const std::vector<ChunkPrediction> chunks{made(0, 9, unknown), made(1, 2, short_answer),
                                            made(2, 5, long_answer), made(3, 5, yes)};
  EXPECT_EQ(best_chunk(chunks, {})->sample, 2);
  const std::vector<ChunkPrediction> none{made(0, 9, unknown), made(1, 20, unknown)};
  EXPECT_EQ(best_chunk(none, {}), nullptr);
  EXPECT_EQ(best_chunk(none, {.may_be_unknown = false})->sample, 1);
  EXPECT_EQ(best_chunk(chunks, {.may_be_unknown = false})->sample, 2);
  EXPECT_EQ(best_chunk({}, {}), nullptr);
}

TEST(data_text_question_predictions, the_order_of_ranks_and_samples_seen_twice_change_nothing) {
  std::vector<ChunkPrediction> one;
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    one.push_back(made(i, random() % 9, AnswerClass(random() % 5), AnswerClass(random() % 5)));
    for (float& x : one.back().probabilities) x += static_cast<float>(random() % 8) / 16;
    one.back().true_start_id = i % 3 == 0 ? -1 : i % 7;
    one.back().likely_start_id = i % 5;
  }
  const ChunkScores alone = score_chunks(one);
  for (const size_t ranks : {1u, 2u, 3u, 7u}) {
    std::vector<ChunkPrediction> gathered;
    for (size_t rank = ranks; rank-- > 0;) {
      std::vector<ChunkPrediction> mine;
      for (size_t i = rank; i < one.size(); i += ranks) mine.push_back(one[i]);
      mine.push_back(one[0]);  // a round that fills up
      for (const auto& p : decode<std::vector<ChunkPrediction>>(encode(mine)))
        gathered.push_back(p);
    }
    sort_predictions(&gathered);
    const ChunkScores together = score_chunks(gathered);
    EXPECT_EQ(together.total, 200);
    EXPECT_EQ(together.class_accuracy, alone.class_accuracy);
    EXPECT_EQ(together.start_accuracy, alone.start_accuracy);
    EXPECT_EQ(together.average_precision, alone.average_precision);
    EXPECT_EQ(together.map, alone.map);
  }
}

TEST(data_text_question_predictions, average_precision_is_scikit_learns) {
  Command python(
      {"/usr/bin/python3", source_path("/tests/data/text/average_precision.py"), "5", "500"});
  const int status = python.finish(std::chrono::seconds(60));
  if (status != 0 && python.err.find("No module named 'numpy'") != std::string::npos)
    GTEST_SKIP() << "no numpy for /usr/bin/python3";
  if (status == 127) GTEST_SKIP() << "no python3";
  ASSERT_EQ(status, 0) << python.err;
  int seen = 0;
  for (const std::string& line : lines_of(python.out)) {
    const auto told = nlohmann::json::parse(line);
    const auto scores = told["scores"].get<std::vector<float>>();
    const auto right = told["right"].get<std::vector<bool>>();
    ASSERT_NEAR(average_precision(scores, right), told["precision"].get<double>(), 1e-12) << line;
    ++seen;
  }
  EXPECT_EQ(seen, 500);
}

TEST(data_text_question_predictions, figures_are_over_all_samples_and_over_classes_that_occur) {
  using enum AnswerClass;
  std::vector<ChunkPrediction> all{made(0, 0, yes, yes), made(1, 0, yes, no), made(2, 0, no, no),
                                   made(3, 0, unknown, unknown)};
  all[0].true_start_id = all[0].likely_start_id = 5;
  all[0].true_end_id = 7;
  all[1].true_start_id = all[1].likely_start_id = 4;
  all[1].true_end_id = all[1].likely_end_id = 9;
  const ChunkScores scores = score_chunks(all);
  EXPECT_EQ(scores.total, 4);
  EXPECT_EQ(scores.with_answer, 2);
  EXPECT_EQ(scores.class_accuracy, 0.75);
  EXPECT_EQ(scores.start_accuracy, 1);
  EXPECT_EQ(scores.end_accuracy, 0.5);
  EXPECT_EQ(scores.average_precision[0], 0.5);  // one of two
  EXPECT_EQ(scores.average_precision[1], 0.5 + 0.5 * 0.5);
  EXPECT_TRUE(std::isnan(scores.average_precision[2]));
  EXPECT_EQ(scores.average_precision[4], 1);
  EXPECT_DOUBLE_EQ(scores.map, (0.5 + 0.75 + 1) / 3);
  EXPECT_ERROR(average_precision(std::vector<float>{1}, {}), UsageError, "1 scores and 0 labels");
}

}  // namespace
}  // namespace trireme::question_predictions_test
