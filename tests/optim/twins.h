// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "trireme/optim/optimizer.h"

namespace trireme {

// Two copies of the same parameters: ours, and what torch::optim steps.
struct Twins {
  explicit Twins(at::ScalarType dtype = at::kFloat) {
    torch::manual_seed(7);
    for (auto [name, shape] :
         std::vector<std::pair<std::string, std::vector<int64_t>>>{{"a.weight", {13, 7}},
                                                                   {"a.bias", {13}},
                                                                   {"norm.weight", {5}},
                                                                   {"b.weight", {3, 1, 9}}}) {
      auto start = torch::randn(shape, dtype);
      ours.emplace_back(name, start.clone().requires_grad_());
      theirs.push_back(start.clone().requires_grad_());
    }
  }
  // The same gradients in both, from one stream.
  void draw_gradients(double scale = 1) {
    for (size_t i = 0; i < theirs.size(); ++i) {
      auto g = torch::randn_like(theirs[i]);
      theirs[i].mutable_grad() = g * scale;
      ours[i].second.mutable_grad() = g.clone();
    }
  }
  double largest_difference() const {
    double worst = 0;
    for (size_t i = 0; i < theirs.size(); ++i)
      worst = std::max(worst, (ours[i].second - theirs[i]).abs().max().item<double>());
    return worst;
  }
  NamedTensors ours;
  std::vector<torch::Tensor> theirs;
};

// Largest difference of ours from torch's after so many steps.
template <class Theirs>
double difference_after(Twins& twins, Optimizer& ours, Theirs& theirs, double lr, int steps = 25,
                        double scale = 1) {
  for (int i = 0; i < steps; ++i) {
    twins.draw_gradients(scale);
    ours.step(lr, scale);
    theirs.step();
  }
  return twins.largest_difference();
}

}  // namespace trireme
