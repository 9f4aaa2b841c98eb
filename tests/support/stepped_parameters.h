// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "trireme/tensor/parameter_table.h"

// Parameters and gradients that are the same on every device, for optimizers that step on several.
namespace trireme::testing {

inline NamedTensors parameters_on(at::Device device, at::ScalarType type,
                                  const std::vector<std::vector<int64_t>>& shapes) {
  NamedTensors all;
  for (const auto& shape : shapes) {
    const at::Tensor values = at::arange(c10::multiply_integers(shape), at::kFloat).mul(0.37).sin();
    all.emplace_back("p" + std::to_string(all.size()),
                     values.view(shape).to(device, type).requires_grad_());
  }
  return all;
}

inline void give_gradients(const NamedTensors& to, int step) {
  for (const auto& [name, p] : to)
    p.mutable_grad() = at::arange(step, step + p.numel(), at::kFloat)
                           .mul(0.9)
                           .cos()
                           .view(p.sizes())
                           .to(p.device(), p.scalar_type());
}

}  // namespace trireme::testing
