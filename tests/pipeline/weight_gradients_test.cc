// SPDX-License-Identifier: Apache-2.0
// Weight gradients that come later (the second half of a backward): of our linear layer in every
// shape and dtype they are those of one backward, to the bit; they are written where somebody
// offers a place for them (a bucket), and reported once; and what is kept until then.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/pipeline/count_products.h"
#include "trireme/layers/plain.h"
#include "trireme/pipeline/split_backward.h"
#include "trireme/tensor/gradient_place.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme::testing::weight_gradients_test {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kIn = 24, kOut = 20;

/// A linear layer whose weight has a place in a bucket, behind another layer: so its input has a
/// gradient that a stage before would wait for.
struct Layer {
  Layer(at::ScalarType dtype, bool with_bias) : linear(kIn, kOut, with_bias) {
    linear.to(dtype);
    at::NoGradGuard no_grad;
    torch::manual_seed(5);
    for (at::Tensor& p : linear.parameters()) p.normal_();
    bucket = at::zeros({kOut * kIn + 8}, dtype);
    offer = std::make_unique<GradientPlaceOffer>(linear.weight, [this] {
      ++asked;
      return GradientPlace{
          at::from_blob(static_cast<char*>(bucket.data_ptr()) + 8 * bucket.element_size(),
                        {kOut, kIn}, bucket.options()),
          nullptr};
    });
    told = std::make_unique<compat::GradHook>(linear.weight, [this] { ++ready; });
  }
  at::Tensor forward(const at::Tensor& x) { return linear.forward(x); }
  bool in_bucket() const {
    return linear.weight.grad().defined() &&
           linear.weight.grad().data_ptr() ==
               static_cast<char*>(bucket.data_ptr()) + 8 * bucket.element_size();
  }

  Linear linear;
  at::Tensor bucket;
  int asked = 0, ready = 0;
  std::unique_ptr<GradientPlaceOffer> offer;
  std::unique_ptr<compat::GradHook> told;
};

class pipeline_weight_gradients
    : public ::testing::TestWithParam<std::tuple<at::ScalarType, std::vector<int64_t>, bool>> {};

TEST_P(pipeline_weight_gradients, come_later_into_their_place_with_the_bits_of_one_backward) {
  const auto& [dtype, batch, with_bias] = GetParam();
  std::vector<int64_t> in = batch, out = batch;
  in.push_back(kIn), out.push_back(kOut);
  torch::manual_seed(3);
  const at::Tensor data = torch::randn(in).to(dtype), seed = torch::randn(out).to(dtype);

  Layer whole(dtype, with_bias), halves(dtype, with_bias);
  const at::Tensor x = data.clone().requires_grad_(), y = data.clone().requires_grad_();
  whole.forward(x).backward(seed);
  ASSERT_TRUE(whole.in_bucket());
  ASSERT_EQ(whole.asked, 1);

  SplitBackward split({halves.forward(y)}, {y});
  const Tensors first = split.input_gradients({seed});
  EXPECT_TRUE(at::equal(first.at(0), x.grad()));
  EXPECT_FALSE(halves.linear.weight.grad().defined());
  EXPECT_EQ(halves.asked, 0) << "nobody writes to the bucket before the second half";
  EXPECT_EQ(halves.ready, 0);
  split.weight_gradients();
  EXPECT_TRUE(halves.in_bucket()) << "without a copy";
  EXPECT_EQ(halves.asked, 1);
  EXPECT_EQ(halves.ready, 1) << "reported once, when it is there";
  EXPECT_TRUE(at::equal(halves.linear.weight.grad(), whole.linear.weight.grad()));
  if (with_bias) {
    EXPECT_TRUE(at::equal(halves.linear.bias.grad(), whole.linear.bias.grad()));
  }

  // The next micro-batch is added there, as by one backward.
  whole.forward(x).backward(seed);
  SplitBackward again({halves.forward(y)}, {y});
  again.input_gradients({seed});
  again.weight_gradients();
  EXPECT_TRUE(halves.in_bucket());
  EXPECT_EQ(halves.ready, 2);
  EXPECT_TRUE(at::equal(halves.linear.weight.grad(), whole.linear.weight.grad()));
}

INSTANTIATE_TEST_SUITE_P(
    shapes, pipeline_weight_gradients,
    ::testing::Combine(::testing::Values(at::kFloat, at::kDouble, at::kBFloat16),
                       ::testing::Values(std::vector<int64_t>{1}, std::vector<int64_t>{33},
                                         std::vector<int64_t>{3, 7}, std::vector<int64_t>{2, 3, 5}),
                       ::testing::Bool()));

TEST(pipeline_weight_gradients_cost, each_half_computes_one_product_of_a_layer_that_has_a_place) {
  Layer layer(at::kDouble, true);
  const at::Tensor x = torch::randn({3, 7, kIn}, at::kDouble).requires_grad_();
  SplitBackward split({layer.forward(x).sum()}, {x});
  CountProducts count;
  split.input_gradients({at::Tensor()});
  EXPECT_EQ(CountProducts::now(), 1);
  split.weight_gradients();
  EXPECT_EQ(CountProducts::now(), 2);
}

// Eight layers with three operators between each two, which keep what they read or wrote for the
// first half alone.
TEST(pipeline_weight_gradients_cost,
     between_the_halves_the_inputs_of_layers_and_their_gradients_are_kept) {
  constexpr int64_t kLayers = 8, kWidth = 16, kRows = 512, kBytes = kRows * kWidth * 4;
  Tensors weights;
  for (int64_t i = 0; i < kLayers; ++i)
    weights.push_back(torch::randn({kWidth, kWidth}).requires_grad_());
  const at::Tensor input = torch::randn({kRows, kWidth}).requires_grad_();
  LiveBytes live;
  int64_t kept_by_forward = 0, kept_between = 0, kept_after = 0;
  {
    at::Tensor x = input;
    for (const at::Tensor& w : weights) x = at::gelu(at::linear(x, w)).exp().tanh();
    SplitBackward split({x.sum()}, {input});
    x = at::Tensor();
    kept_by_forward = live.now();
    Tensors passed_on = split.input_gradients({at::Tensor()});
    kept_between = live.now();
    passed_on.clear();
    split.weight_gradients();
    for (const at::Tensor& w : weights) w.mutable_grad() = at::Tensor();
  }
  kept_after = live.now();
  // gelu's input, what exp and tanh gave: the last one is the next layer's input as well.
  EXPECT_GE(kept_by_forward, 3 * kLayers * kBytes);
  // Of each layer its input (of the first it is the stage's) and its gradient; the input's
  // gradient.
  EXPECT_LE(kept_between, (2 * kLayers + 1) * kBytes);
  EXPECT_GE(kept_between, 2 * kLayers * kBytes - kBytes);
  EXPECT_LE(kept_after, kBytes);
}

}  // namespace
}  // namespace trireme::testing::weight_gradients_test
