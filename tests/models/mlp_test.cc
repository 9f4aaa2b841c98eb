// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/mlp.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace mlp_test {

using namespace trireme;

TEST(models_mlp, has_the_names_and_shapes_of_its_pytorch_twin) {
  Mlp mlp({784, 256, 10}, 1);
  const auto parameters = mlp.named_parameters();
  EXPECT_EQ(parameters.keys(), (std::vector<std::string>{"layers.0.weight", "layers.0.bias",
                                                         "layers.1.weight", "layers.1.bias"}));
  EXPECT_EQ(parameters["layers.0.weight"].sizes(), (at::IntArrayRef{256, 784}));
}

TEST(models_mlp, forward_is_linear_relu_linear_on_flattened_images) {
  Mlp mlp({12, 5, 4, 3}, 1);
  auto x = at::randn({2, 1, 3, 4});
  auto p = mlp.named_parameters();
  auto h = x.flatten(1);
  for (int i = 0; i < 3; ++i) {
    const auto name = "layers." + std::to_string(i);
    h = at::addmm(p[name + ".bias"], h, p[name + ".weight"].t());
    if (i < 2) h = h.relu();
  }
  EXPECT_TRUE(mlp.forward(x).allclose(h));
}

TEST(models_mlp, loss_is_a_sum_over_samples) {
  Mlp mlp({4, 3}, 1);
  auto x = at::randn({6, 4});
  auto target = at::tensor({0, 1, 2, 0, 1, 2}, at::kLong);
  auto whole = mlp.loss_sum(mlp.forward(x), target);
  auto first = mlp.loss_sum(mlp.forward(x.narrow(0, 0, 2)), target.narrow(0, 0, 2));
  auto rest = mlp.loss_sum(mlp.forward(x.narrow(0, 2, 4)), target.narrow(0, 2, 4));
  EXPECT_NEAR(whole.item<double>(), first.item<double>() + rest.item<double>(), 1e-5);
  EXPECT_NEAR(whole.item<double>(),
              at::cross_entropy_loss(mlp.forward(x), target).item<double>() * 6, 1e-5);
}

TEST(models_mlp, sizes_that_make_no_network_are_refused) {
  EXPECT_THROW(Mlp({784}, 1), UsageError);
  EXPECT_THROW(Mlp({784, 0, 10}, 1), UsageError);
}

TEST(models_mlp, has_no_blocks_to_recompute_and_says_so) {
  Mlp mlp({3, 4, 2}, 1);
  EXPECT_EQ(mlp.blocks(), 0);
  EXPECT_NO_THROW(mlp.set_recompute({}));
  try {
    mlp.set_recompute({true});
    ADD_FAILURE() << "was taken";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("keeps its activations"), std::string::npos) << e.what();
  }
}

}  // namespace mlp_test
