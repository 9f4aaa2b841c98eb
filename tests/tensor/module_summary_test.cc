// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/module_summary.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

namespace trireme::testing::module_summary_test {
namespace {

// pytorch_lightning 1.4.9's get_human_readable_count(), without its spaces at the end.
TEST(tensor_module_summary, counts_are_as_short_as_lightnings) {
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(320), "320");
  EXPECT_EQ(short_count(999), "999");
  EXPECT_EQ(short_count(1000), "1.0 K");
  EXPECT_EQ(short_count(18496), "18.5 K");
  EXPECT_EQ(short_count(123456), "123 K");
  EXPECT_EQ(short_count(999999), "999 K");
  EXPECT_EQ(short_count(1199882), "1.2 M");
  EXPECT_EQ(short_count(3000000000), "3.0 B");
  EXPECT_EQ(short_count(4000000000000), "4.0 T");
  EXPECT_EQ(short_count(5000000000000000), "5,000 T");
}

struct MnistImpl : torch::nn::Module {
  MnistImpl() {
    register_module("conv1", torch::nn::Conv2d(1, 32, 3));
    register_module("conv2", torch::nn::Conv2d(32, 64, 3));
    register_module("dropout1", torch::nn::Dropout(0.25));
    register_module("dropout2", torch::nn::Dropout(0.5));
    register_module("fc1", torch::nn::Linear(9216, 128));
    register_module("fc2", torch::nn::Linear(128, 10));
  }
};

TEST(tensor_module_summary, of_mnists_network_is_what_lightning_prints) {
  EXPECT_EQ(module_summary(MnistImpl()), R"(  | Name     | Type    | Params
-------------------------------------
0 | conv1    | Conv2d  | 320
1 | conv2    | Conv2d  | 18.5 K
2 | dropout1 | Dropout | 0
3 | dropout2 | Dropout | 0
4 | fc1      | Linear  | 1.2 M
5 | fc2      | Linear  | 1.3 K
-------------------------------------
1.2 M     Trainable params
0         Non-trainable params
1.2 M     Total params
4.800     Total estimated model params size (MB))");
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    auto in = register_module("in", torch::nn::Linear(torch::nn::LinearOptions(10, 4).bias(false)));
    auto blocks = register_module(
        "blocks", torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::ReLU()));
    register_parameter("scale", torch::ones({4}));
    register_module("again", in);  // tied
    for (auto& p : blocks->parameters()) p.set_requires_grad(false);
    blocks->to(torch::kDouble);
  }
};

TEST(tensor_module_summary, counts_tied_weights_once_and_frozen_ones_apart) {
  EXPECT_EQ(module_summary(TiedImpl()), R"(  | Name   | Type       | Params
--------------------------------------
0 | in     | Linear     | 40
1 | blocks | Sequential | 20
2 | again  | Linear     | 40
--------------------------------------
44        Trainable params
20        Non-trainable params
64        Total params
0.000     Total estimated model params size (MB))");
}

TEST(tensor_module_summary, of_a_module_without_parts_has_no_rows) {
  EXPECT_EQ(module_summary(torch::nn::LinearImpl(30, 100)), R"(  | Name | Type | Params
------------------------------
------------------------------
3.1 K     Trainable params
0         Non-trainable params
3.1 K     Total params
0.012     Total estimated model params size (MB))");
}

}  // namespace
}  // namespace trireme::testing::module_summary_test
