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
// at two paths) is one tensor. It has one gradient, one place in a bucket, one state in an
// optimizer and one in a checkpoint. Whatever takes named tensors takes each once, under the name
// that comes first, as PyTorch's named_parameters() lists them in Python; LibTorch's lists all
// names.
namespace trireme {

/// `name` is one more name of the tensor that is listed as `first`.
struct TiedName {
  std::string name, first;
  bool operator==(const TiedName&) const = default;
};
using TiedNames = std::vector<TiedName>;

/// Each tensor once (the same TensorImpl, not the same values), under its first name, in the order
/// of those. `tied`: the other names are added to it. `known`: tensors that are listed elsewhere
/// already.
TRIREME_API NamedTensors unique_tensors(const NamedTensors& tensors, TiedNames* tied = nullptr,
                                        const NamedTensors& known = {});

/// A module's parameters, each once. What to make an optimizer of: torch::optim steps a tensor
/// twice that it is given twice.
TRIREME_API NamedTensors named_parameters(const torch::nn::Module& module,
                                          TiedNames* tied = nullptr);
/// A module's buffers, each once.
TRIREME_API NamedTensors named_buffers(const torch::nn::Module& module, TiedNames* tied = nullptr);

/// Patterns (* and ?) that find a tensor under any of its names in a list that has first names
/// alone: behind each that matches another name comes the first one.
TRIREME_API std::vector<std::string> with_first_names(const std::vector<std::string>& patterns,
                                                      const TiedNames& tied);

}  // namespace trireme
