// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

namespace torch::nn {
class Module;
}

// Tied weights: a tensor that is registered under two names (a head that is the embedding, a module
// at two paths) is one tensor. It has one gradient, one place in a bucket, one optimizer state and
// one entry in a checkpoint. Everything that takes named tensors takes each tensor once, under its
// first name, as named_parameters() lists them in Python; LibTorch's named_parameters() lists all
// names.
namespace trireme {

/// `name` is a further name of the tensor that is listed as `first`.
struct TiedName {
  std::string name, first;
  bool operator==(const TiedName&) const = default;
};
using TiedNames = std::vector<TiedName>;

/// Lists each tensor once (the same TensorImpl, not merely equal values) under its first name, in
/// the order of those names. The other names are appended to `tied`. `known`: tensors that are
/// already listed elsewhere.
TRIREME_API NamedTensors unique_tensors(const NamedTensors& tensors, TiedNames* tied = nullptr,
                                        const NamedTensors& known = {});

/// A module's parameters, each once. Build optimizers from this list: torch::optim steps a tensor
/// twice if it is given twice.
TRIREME_API NamedTensors named_parameters(const torch::nn::Module& module,
                                          TiedNames* tied = nullptr);
/// A module's buffers, each once.
TRIREME_API NamedTensors named_buffers(const torch::nn::Module& module, TiedNames* tied = nullptr);

/// Extends patterns (* and ?) so that they find a tensor by any of its names in a list that has
/// first names only: after each pattern that matches a further name, the first name is inserted.
TRIREME_API std::vector<std::string> with_first_names(const std::vector<std::string>& patterns,
                                                      const TiedNames& tied);

}  // namespace trireme
