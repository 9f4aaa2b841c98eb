// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/digits.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/data/sources/idx.h"

namespace digits_test {

using namespace trireme;

namespace {
std::vector<int64_t> ids(int64_t from, int64_t n) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), from);
  return v;
}
}  // namespace

TEST(data_digits, a_sample_is_a_function_of_its_id) {
  const auto a = make_digits(), b = make_digits();
  const auto x = a->get({5, 900}), y = b->get({900}), z = a->get({901});
  EXPECT_TRUE(x.input[1].equal(y.input[0]));
  EXPECT_EQ(x.target[1].item<int64_t>(), y.target[0].item<int64_t>());
  EXPECT_FALSE(y.input.equal(z.input));
}

TEST(data_digits, parts_and_seeds_share_no_image) {
  const auto base = make_digits()->get(ids(0, 8)).input;
  EXPECT_FALSE(make_digits({.part = "validation"})->get(ids(0, 8)).input.equal(base));
  EXPECT_FALSE(make_digits({.seed = 1})->get(ids(0, 8)).input.equal(base));
}

TEST(data_digits, they_look_like_mnist) {
  const auto batch = make_digits()->get(ids(0, 2000));
  EXPECT_EQ(batch.input.sizes(), (at::IntArrayRef{2000, 1, 28, 28}));
  EXPECT_EQ(batch.weight, 2000);
  EXPECT_GE(batch.input.min().item<float>(), normalised_pixel(0));
  EXPECT_LE(batch.input.max().item<float>(), normalised_pixel(1));
  const auto pixels = batch.input.mul(0.3081).add(0.1307);
  EXPECT_NEAR(pixels.mean().item<float>(), 0.15, 0.06);
  const auto counts = at::bincount(batch.target, {}, 10);
  EXPECT_EQ(counts.size(0), 10);
  EXPECT_GT(counts.min().item<int64_t>(), 140);
  EXPECT_LT(counts.max().item<int64_t>(), 260);
}

TEST(data_digits, the_nearest_mean_image_is_not_enough_to_read_them) {
  const auto train = make_digits()->get(ids(0, 3000)),
             test = make_digits({.part = "validation"})->get(ids(0, 1000));
  const auto x = train.input.flatten(1), y = test.input.flatten(1);
  std::vector<at::Tensor> means;
  for (int64_t d = 0; d < 10; ++d)
    means.push_back(x.index_select(0, at::nonzero(train.target.eq(d)).flatten()).mean(0));
  const auto guess = at::cdist(y, at::stack(means)).argmin(1);
  const double right = guess.eq(test.target).to(at::kFloat).mean().item<double>();
  EXPECT_GT(right, 0.4);
  EXPECT_LT(right, 0.9);
}

TEST(data_digits, none_is_refused) { EXPECT_THROW(make_digits({.count = 0}), UsageError); }

}  // namespace digits_test
