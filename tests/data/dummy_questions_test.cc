// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/data/text/errors.h"
#include "trireme/data/sources/question_source.h"

namespace trireme::dummy_questions_test {
namespace {

std::vector<int64_t> ids(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// What np.random.randint(1, V) gives, with [PAD], [CLS] and [SEP] replaced by [UNK]: each of the
// V - 1 numbers alike, so that [UNK] has its own share and those of the special ones among them.
TEST(data_dummy_questions, ten_thousand_samples_have_the_recipes_statistics) {
  const DummyQuestionOptions options{.vocabulary = 1000};
  const MicroBatch batch = make_dummy_questions(options)->get(ids(10'000));
  ASSERT_EQ(batch.input.sizes(), (at::IntArrayRef{10'000, 384}));
  EXPECT_TRUE(batch.input.select(1, 0).eq(101).all().item<bool>());
  EXPECT_TRUE(batch.input.select(1, 65).eq(102).all().item<bool>());
  EXPECT_TRUE(batch.input.select(1, 383).eq(102).all().item<bool>());
  const at::Tensor drawn =
      at::cat({batch.input.narrow(1, 1, 64), batch.input.narrow(1, 66, 317)}, 1);
  const at::Tensor counts = at::bincount(drawn.flatten(), {}, 1000).to(at::kDouble);
  EXPECT_EQ(counts.size(0), 1000);
  const double all = 10'000 * 381.0, each = all / 999;
  for (const int64_t never : {0, 101, 102}) EXPECT_EQ(counts[never].item<double>(), 0);
  EXPECT_NEAR(counts[100].item<double>(), 3 * each, 6 * std::sqrt(3 * each));
  // Chi squared over the 996 others: its mean is 996, its deviation √(2 · 996).
  double chi = 0;
  for (int64_t piece = 1; piece < 1000; ++piece)
    if (piece < 100 || piece > 102) chi += std::pow(counts[piece].item<double>() - each, 2) / each;
  EXPECT_NEAR(chi, 996, 6 * std::sqrt(2 * 996.0));
  // No place is drawn from others than the rest: the mean of each column is that of 1 … 999, but
  // for what became 100.
  const double mean = 500.0 + (100.0 - 101 + 100 - 102) / 999, deviation = 288.4;
  const at::Tensor means = drawn.to(at::kDouble).mean(0);
  EXPECT_LT((means - mean).abs().max().item<double>(), 5 * deviation / std::sqrt(10'000));

  const auto everywhere = [&](const char* name, double value) {
    const at::Tensor& of = batch.tensor(name);
    return of.size(0) == 10'000 && of.eq(value).all().item<bool>();
  };
  EXPECT_TRUE(everywhere("start_ids", 0));
  EXPECT_TRUE(everywhere("end_ids", 383));
  EXPECT_TRUE(everywhere("classes", 0));
  EXPECT_TRUE(everywhere("start_positions", 0));
  EXPECT_TRUE(everywhere("end_positions", 1));
  EXPECT_TRUE(everywhere("attention_mask", 1));
  EXPECT_TRUE(batch.tensor("token_types").sum(1).eq(384 - 66).all().item<bool>());
  EXPECT_TRUE(batch.tensor("token_types").narrow(1, 66, 318).eq(1).all().item<bool>());
  EXPECT_EQ(batch.tensor("classes").scalar_type(), at::kLong);
  EXPECT_EQ(batch.tensor("end_positions").scalar_type(), at::kFloat);
  EXPECT_EQ(batch.weight, 10'000);
}

TEST(data_dummy_questions, the_defaults_are_the_recipes) {
  const auto source = make_dummy_questions();
  EXPECT_EQ(source->size(), 10'000);
  const MicroBatch batch = source->get({0, 9'999});
  EXPECT_EQ(batch.input.sizes(), (at::IntArrayRef{2, 384}));
  EXPECT_GT(batch.input.max().item<int64_t>(), 20'000);
  EXPECT_LT(batch.input.max().item<int64_t>(), 30'522);
  EXPECT_EQ(source->describe(), "dummy questions: 10000 samples of 384 random pieces");
}

TEST(data_dummy_questions, a_sample_is_a_function_of_seed_epoch_and_id) {
  const auto source = make_dummy_questions();
  const MicroBatch two = source->get_in_epoch({3, 4}, 2), one = source->get_in_epoch({4}, 2);
  EXPECT_TRUE(two.input[1].equal(one.input[0]));
  EXPECT_FALSE(two.input[0].equal(two.input[1]));
  EXPECT_FALSE(source->get_in_epoch({4}, 3).input.equal(one.input));
  EXPECT_FALSE(make_dummy_questions({.seed = 1})->get_in_epoch({4}, 2).input.equal(one.input));
}

TEST(data_dummy_questions, sizes_that_cannot_be_are_refused) {
  EXPECT_ERROR(make_dummy_questions({.max_length = 67}), UsageError, "leaves no room");
  EXPECT_ERROR(make_dummy_questions({.max_question = 0}), UsageError, "max_question 0");
  EXPECT_ERROR(make_dummy_questions({.samples = 0}), UsageError, "0 samples");
  EXPECT_ERROR(make_dummy_questions({.vocabulary = 100}), UsageError,
               "a special piece is 100, and there are 100 pieces");
  EXPECT_EQ(make_dummy_questions({.max_length = 5, .max_question = 1})->get({0}).input.size(1), 5);
}

}  // namespace
}  // namespace trireme::dummy_questions_test
