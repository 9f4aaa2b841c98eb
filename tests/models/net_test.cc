// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/net.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace net_test {

using namespace trireme;

TEST(models_net, has_the_names_and_shapes_of_its_pytorch_twin) {
  Net net(1);
  auto p = net.named_parameters();
  EXPECT_EQ(p.keys(),
            (std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                      "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}));
  EXPECT_EQ(p["conv2.weight"].sizes(), (at::IntArrayRef{20, 20, 5, 5}));
  EXPECT_EQ(p["fc1.weight"].sizes(), (at::IntArrayRef{50, 2000}));
}

TEST(models_net, forward_is_the_layers_in_their_order) {
  Net net(1);
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
}

TEST(models_net, other_shapes_are_refused) {
  Net net(1);
  EXPECT_THROW(net.forward(at::zeros({2, 1, 20, 20})), UsageError);
  EXPECT_THROW(net.forward(at::zeros({2, 784})), UsageError);
}

}  // namespace net_test
