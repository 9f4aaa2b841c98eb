// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/convnet.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace convnet_test {

using namespace trireme;

TEST(models_convnet, forward_is_the_layers_in_their_order) {
  ConvNet net(1);
  net.eval();
  auto p = net.named_parameters();
  auto x = at::randn({3, 1, 28, 28});
  auto h = at::conv2d(x, p["conv1.weight"], p["conv1.bias"]).relu();
  h = at::conv2d(h, p["conv2.weight"], p["conv2.bias"]).relu();
  h = at::max_pool2d(h, 2).flatten(1);
  h = at::linear(h, p["fc1.weight"], p["fc1.bias"]).relu();
  h = at::log_softmax(at::linear(h, p["fc2.weight"], p["fc2.bias"]), 1);
  auto y = net.forward(x);
  EXPECT_TRUE(y.allclose(h, 1e-5, 1e-6));
  auto target = at::tensor({1, 2, 3}, at::kLong);
  EXPECT_NEAR(net.loss_sum(y, target).item<double>(), at::nll_loss(h, target).item<double>() * 3,
              1e-4);
  net.train();
  EXPECT_FALSE(net.forward(x).allclose(h)) << "dropout drops nothing";
}

TEST(models_convnet, has_the_parameters_of_pytorchs_example) {
  ConvNet net(1);
  int64_t count = 0;
  for (const auto& p : net.parameters()) count += p.numel();
  EXPECT_EQ(count, 1199882);
}

TEST(models_convnet, other_shapes_are_refused) {
  ConvNet net(1);
  EXPECT_THROW(net.forward(at::zeros({2, 1, 20, 20})), UsageError);
  EXPECT_THROW(net.forward(at::zeros({2, 784})), UsageError);
}

}  // namespace convnet_test
