// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <string>
#include <vector>

#include "trireme/tensor/parameter_table.h"

// Parameters and gradients for tests of optimizers: made-up numbers, the same on every device.
namespace trireme::testing {

using Shapes = std::vector<std::vector<int64_t>>;

/// "p0", "p1", … of these shapes, between −1 and 1.
inline NamedTensors some_parameters(at::ScalarType type, at::Device device,
                                    const Shapes& shapes = {{33, 17}, {5}, {2, 3, 4}}) {
  NamedTensors all;
  for (const auto& shape : shapes) {
    const int64_t n = c10::multiply_integers(shape);
    all.emplace_back(
        "p" + std::to_string(all.size()),
        at::arange(n, at::kFloat).mul(0.37).sin().view(shape).to(device, type).requires_grad_());
  }
  return all;
}

/// A gradient for each, another one in each step, of numbers that `rounded_to` can hold.
inline void give_gradients(const NamedTensors& to, int step,
                           at::ScalarType rounded_to = at::kFloat) {
  for (const auto& [name, p] : to)
    p.mutable_grad() = at::arange(step, step + p.numel(), at::kFloat)
                           .mul(0.9)
                           .cos()
                           .view(p.sizes())
                           .to(rounded_to)
                           .to(p.device(), p.scalar_type());
}

}  // namespace trireme::testing
