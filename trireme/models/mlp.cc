// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/mlp.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/relu.h>

#include <string>

#include "trireme/base/check.h"
#include "trireme/models/init.h"

namespace trireme {
namespace {
struct LayerList : torch::nn::Module {};
}  // namespace

Mlp::Mlp(const std::vector<int64_t>& sizes, uint64_t seed, const UnitMade& unit_made)
    : Model("Mlp") {
  check<UsageError>(sizes.size() >= 2,
                    "mlp: {} sizes: at least the input and the classes are needed", sizes.size());
  for (auto n : sizes)
    check<UsageError>(n >= 1, "mlp: a layer of {} units: sizes are at least 1", n);
  auto list = register_module("layers", std::make_shared<LayerList>());
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers_.push_back(
        list->register_module(std::to_string(i), std::make_shared<Linear>(sizes[i], sizes[i + 1])));
    const std::string path = "layers." + std::to_string(i);
    init_uniform_fan_in(*layers_.back(), seed, path + ".");
    if (unit_made) unit_made(static_cast<int64_t>(i), path, *layers_.back());
  }
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  auto x = input.flatten(1);
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = run_unit(
        static_cast<int64_t>(i), [&](const at::Tensor& in) { return layers_[i]->forward(in); }, x);
    if (i + 1 < layers_.size()) x = at::relu(x);
  }
  return x;
}

at::Tensor Mlp::loss_sum(const at::Tensor& output, const at::Tensor& target) {
  return at::cross_entropy_loss(output.to(at::kFloat), target, {}, at::Reduction::Sum);
}

}  // namespace trireme
