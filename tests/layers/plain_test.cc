// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/plain.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace plain_test {

using namespace trireme;

namespace {
at::Tensor fill(at::Tensor t) {
  at::NoGradGuard no_grad;
  return t.copy_(at::randn(t.sizes()));
}
}  // namespace

TEST(layers_plain, linear_has_pytorchs_parameters) {
  Linear with(3, 2), without(3, 2, false);
  EXPECT_EQ(with.named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(without.named_parameters().keys(), std::vector<std::string>{"weight"});
  fill(with.weight), fill(with.bias), fill(without.weight);
  auto x = at::randn({4, 3});
  EXPECT_TRUE(with.forward(x).allclose(at::addmm(with.bias, x, with.weight.t())));
  EXPECT_TRUE(without.forward(x).allclose(at::mm(x, without.weight.t())));
  EXPECT_TRUE(with.weight.requires_grad());
}

TEST(layers_plain, layer_norm_normalises_the_last_dim) {
  LayerNorm norm(8);
  {
    at::NoGradGuard no_grad;
    norm.weight.fill_(2), norm.bias.fill_(1);
  }
  auto y = norm.forward(at::randn({3, 5, 8}).mul(7).add(3));
  EXPECT_TRUE(y.mean(-1).allclose(at::ones({3, 5}), 1e-4, 1e-4));
  EXPECT_TRUE(y.std(-1, false).allclose(at::full({3, 5}, 2.0), 1e-3, 1e-3));
}

TEST(layers_plain, embedding_picks_rows) {
  Embedding table(5, 3);
  fill(table.weight);
  auto y = table.forward(at::tensor({4, 0}, at::kLong));
  EXPECT_TRUE(y[0].equal(table.weight[4]) && y[1].equal(table.weight[0]));
}

TEST(layers_plain, convolution_has_no_padding) {
  Conv2d conv(1, 4, 5);
  fill(conv.weight), fill(conv.bias);
  EXPECT_EQ(conv.forward(at::randn({2, 1, 28, 28})).sizes(), (at::IntArrayRef{2, 4, 24, 24}));
}

}  // namespace plain_test
