// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/tensor/parameter_table.h"

// Inside optim.
namespace trireme::detail {

/// One flat float32 buffer, a view for each parameter under its name, not filled yet.
/// `options`: where.
inline NamedTensors float32_twins(const NamedTensors& parameters,
                                  const at::TensorOptions& options) {
  int64_t numel = 0;
  for (const auto& [name, p] : parameters) numel += p.numel();
  const at::Tensor flat = at::empty({numel}, options.dtype(at::kFloat).requires_grad(false));
  NamedTensors twins;
  int64_t offset = 0;
  for (const auto& [name, p] : parameters) {
    twins.emplace_back(name, flat.narrow(0, offset, p.numel()).view(p.sizes()));
    offset += p.numel();
  }
  return twins;
}

/// UsageError for no parameters, and for undefined ones.
inline void check_there(const NamedTensors& parameters) {
  check<UsageError>(!parameters.empty(),
                    "optimizer: no parameters: does the model have any that require a gradient?");
  for (const auto& [name, p] : parameters)
    check<UsageError>(p.defined(), "optimizer: parameter '{}' is an undefined tensor", name);
}

}  // namespace trireme::detail
