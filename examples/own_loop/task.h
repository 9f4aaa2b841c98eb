// SPDX-License-Identifier: Apache-2.0
// The task of the programs beside this file: points of the plane, whose class is their quadrant.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <vector>

struct Quadrants : torch::data::datasets::Dataset<Quadrants> {
  // The same points on every rank.
  Quadrants() {
    torch::manual_seed(7);
    points = torch::rand({4096, 2}) * 2 - 1;
    classes =
        (points.select(1, 1) > 0).to(torch::kLong) * 2 + (points.select(1, 0) > 0).to(torch::kLong);
  }
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {points[i], classes[i]};
  }
  torch::optional<size_t> size() const override { return points.size(0); }

  torch::Tensor points, classes;
};

struct BlockImpl : torch::nn::Module {
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(32, 32))};
  torch::Tensor forward(const torch::Tensor& x) { return x + torch::relu(linear(x)); }
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(2, 32))};
  Block block{register_module("block", Block())};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(32, 4))};
  torch::Tensor forward(const torch::Tensor& x) { return out(block(torch::relu(in(x)))); }
};
TORCH_MODULE(Net);
