// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/stock_random.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include "trireme/layers/dropout.h"

namespace stock_random_test {

using namespace trireme;

namespace {

template <class... Modules>
std::string found(Modules... modules) {
  const auto drawn = find_stock_random(*torch::nn::Sequential(modules...));
  return drawn ? drawn->path + ": " + drawn->type : "";
}

}  // namespace

TEST(tensor_stock_random, modules_that_draw_from_torchs_generator_are_found_by_path_and_type) {
  using namespace torch::nn;
  EXPECT_EQ(found(Linear(2, 2), torch::nn::Dropout(0.5)), "1: torch::nn::Dropout");
  EXPECT_EQ(found(Dropout2d(0.5)), "0: torch::nn::Dropout2d");
  EXPECT_EQ(found(Dropout3d(0.5)), "0: torch::nn::Dropout3d");
  EXPECT_EQ(found(AlphaDropout(0.5)), "0: torch::nn::AlphaDropout");
  EXPECT_EQ(found(FeatureAlphaDropout(0.5)), "0: torch::nn::FeatureAlphaDropout");
  EXPECT_EQ(found(RReLU()), "0: torch::nn::RReLU");
  EXPECT_EQ(found(GRU(GRUOptions(2, 2).num_layers(2).dropout(0.1))),
            "0: torch::nn::GRU with dropout");
  struct Nested : Module {
    Nested() { register_module("branch", Sequential(Linear(2, 2), torch::nn::Dropout(0.5))); }
  };
  const Nested nested;  // on the stack, as in a program of somebody's
  EXPECT_EQ(find_stock_random(nested)->path, "branch.1");
  EXPECT_EQ(found(TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dropout(0.1))),
            "0.self_attn: torch::nn::MultiheadAttention with dropout");
}

TEST(tensor_stock_random, others_are_not) {
  using namespace torch::nn;
  EXPECT_EQ(found(Linear(2, 2), BatchNorm1d(2), LSTM(2, 2), ReLU(), trireme::Dropout(0.5)), "");
}

TEST(tensor_stock_random, says_what_to_write_instead) {
  torch::nn::Sequential net(torch::nn::Dropout(0.5));
  EXPECT_EQ(find_stock_random(*net)->instead, "trireme::Dropout, which is keyed by sample");
}

}  // namespace stock_random_test
