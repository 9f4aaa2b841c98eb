// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/layers/plain.h"
#include "trireme/models/model.h"

namespace trireme {

/// Linear layers with ReLU between them; [b, …] is flattened to [b, sizes[0]], output [b,
/// sizes.back()] scores, loss: cross-entropy. Parameters: layers.0.weight, layers.0.bias, … (a
/// torch.nn.ModuleList of Linear).
struct TRIREME_API Mlp : Model {
  /// sizes: input, hidden …, classes.
  /// Units: the layers.
  Mlp(const std::vector<int64_t>& sizes, uint64_t seed, const UnitMade& unit_made = {});
  at::Tensor forward(const at::Tensor& input) override;
  at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) override;

 private:
  std::vector<std::shared_ptr<Linear>> layers_;
};

}  // namespace trireme
