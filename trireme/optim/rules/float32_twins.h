// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <unordered_map>

#include "trireme/base/check.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/tensor_overlaps.h"
#include "trireme/tensor/tied_tensors.h"

// Inside optim.
namespace trireme::detail {

inline int64_t twins_numel(const NamedTensors& parameters) {
  int64_t numel = 0;
  for (const auto& [name, p] : unique_tensors(parameters)) numel += p.numel();
  return numel;
}

/// One flat float32 buffer of twins_numel(), a view for each parameter under its name, not filled
/// yet. A parameter under two names has one twin under both, so that whoever is made of twins knows
/// the names.
inline NamedTensors float32_twins(const NamedTensors& parameters, const at::Tensor& flat) {
  NamedTensors twins;
  std::unordered_map<const at::TensorImpl*, at::Tensor> twin_of;
  int64_t offset = 0;
  for (const auto& [name, p] : parameters) {
    at::Tensor& twin = twin_of[p.unsafeGetTensorImpl()];
    if (!twin.defined()) {
      twin = flat.narrow(0, offset, p.numel()).view(p.sizes());
      offset += p.numel();
    }
    twins.emplace_back(name, twin);
  }
  return twins;
}
/// `options`: where.
inline NamedTensors float32_twins(const NamedTensors& parameters,
                                  const at::TensorOptions& options) {
  return float32_twins(parameters, at::empty({twins_numel(parameters)},
                                             options.dtype(at::kFloat).requires_grad(false)));
}

/// UsageError for no parameters, for undefined ones, and for two in one memory, of which only one
/// twin's values could be kept.
inline void check_there(const char* who, const NamedTensors& parameters) {
  check<UsageError>(!parameters.empty(),
                    "optimizer: no parameters: does the model have any that require a gradient?");
  for (const auto& [name, p] : parameters)
    check<UsageError>(p.defined(), "optimizer: parameter '{}' is an undefined tensor", name);
  refuse_overlaps(who, unique_tensors(parameters));
}

}  // namespace trireme::detail
