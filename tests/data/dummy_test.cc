// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/dummy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "trireme/base/error.h"

namespace dummy_test {

using namespace trireme;

TEST(data_dummy, values_have_mean_0_and_variance_1) {
  const auto source = make_dummy({.input_shape = {3, 28, 28}, .classes = 7});
  std::vector<int64_t> ids(200);
  std::iota(ids.begin(), ids.end(), 0);
  const auto batch = source->get(ids);
  EXPECT_EQ(batch.input.sizes(), (at::IntArrayRef{200, 3, 28, 28}));
  EXPECT_NEAR(batch.input.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(batch.input.var().item<double>(), 1, 0.02);
  EXPECT_EQ(at::bincount(batch.target).size(0), 7);
  EXPECT_EQ(batch.weight, 200);
}

TEST(data_dummy, a_sample_is_a_function_of_its_id_and_differs_from_the_next) {
  const DummyOptions options{.input_shape = {16}};
  const auto a = make_dummy(options)->get({7, 8}), b = make_dummy(options)->get({8});
  EXPECT_TRUE(a.input[1].equal(b.input[0]));
  EXPECT_FALSE(a.input[0].equal(a.input[1]));
  EXPECT_GE(make_dummy(options)->size(), int64_t{1} << 40);
}

TEST(data_dummy, tokens_are_shifted_by_one_and_in_the_vocabulary) {
  const auto batch =
      make_dummy({.input_shape = {32}, .classes = 256, .tokens = true})->get({3, 4, 5});
  EXPECT_EQ(batch.input.sizes(), (at::IntArrayRef{3, 32}));
  EXPECT_TRUE(batch.input.narrow(1, 1, 31).equal(batch.target.narrow(1, 0, 31)));
  EXPECT_GE(batch.input.min().item<int64_t>(), 0);
  EXPECT_LT(batch.target.max().item<int64_t>(), 256);
  EXPECT_EQ(batch.weight, 96);
}

TEST(data_dummy, bad_shapes_are_refused) {
  EXPECT_THROW(make_dummy({.input_shape = {0}}), UsageError);
  EXPECT_THROW(make_dummy({.input_shape = {4}, .classes = 0}), UsageError);
  EXPECT_THROW(make_dummy({.input_shape = {4, 4}, .tokens = true}), UsageError);
}

TEST(data_dummy, an_epoch_has_as_many_samples_as_it_is_told) {
  const auto source = make_dummy({.input_shape = {4}, .samples = 9});
  EXPECT_EQ(source->size(), 9);
  EXPECT_NE(source->describe().find("9 samples"), std::string::npos) << source->describe();
  EXPECT_EQ(make_dummy({.input_shape = {4}})->size(), int64_t{1} << 40);
  EXPECT_THROW(make_dummy({.input_shape = {4}, .samples = 0}), UsageError);
}

}  // namespace dummy_test
