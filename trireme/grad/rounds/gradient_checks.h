// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/parameter_table.h"

// What a Reducer refuses, and how it says so.
namespace trireme {

/// Throws UsageError for a parameter that the group's backend cannot reduce.
void check_reducible(const NamedTensors& parameters, const Group& group);

namespace detail {
[[noreturn]] void refuse_gradient(const std::string& name, const at::Tensor& grad,
                                  const at::Tensor& place);
}
/// Throws UsageError for a gradient that does not fit its place. In every hook: cheap.
inline void check_gradient(const std::string& name, const at::Tensor& grad,
                           const at::Tensor& place) {
  if (!grad.defined() || grad.requires_grad() || grad.is_sparse() ||
      grad.scalar_type() != place.scalar_type() || grad.sizes() != place.sizes()) [[unlikely]]
    detail::refuse_gradient(name, grad, place);
}

/// Every rank has it already: Mismatch, PeerLost, Timeout, Aborted.
bool is_fact_of_the_group(const Error& error);
/// What the others are told when this rank's communication hook threw.
std::string hook_failure(int rank, size_t bucket, const std::string& what);
/// … and DdpOptions::before_reducing.
std::string before_reducing_failure(int rank, const std::string& what);

}  // namespace trireme
