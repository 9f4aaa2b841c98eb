// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/tensor/parameter_table.h"

namespace torch::nn {
class Module;
}

namespace trireme::rpc {

/// Parameters and buffers by their names, as torch's state_dict.
using StateDict = std::map<std::string, at::Tensor>;

struct ParameterInfo {
  std::string name;
  std::vector<int64_t> sizes;
  bool requires_grad = false;
  TRIREME_FIELDS(name, sizes, requires_grad)
};

namespace detail {

/// Copies, of the module's own memory.
TRIREME_API StateDict state_dict_of(const torch::nn::Module& module);
/// Mismatch, and nothing has changed: names or sizes are others; names them.
TRIREME_API void load_state_dict_into(torch::nn::Module& module, const StateDict& state);
TRIREME_API std::vector<ParameterInfo> parameters_of(const torch::nn::Module& module);
/// Those that require a gradient.
TRIREME_API NamedTensors trained_parameters_of(const torch::nn::Module& module);

}  // namespace detail
}  // namespace trireme::rpc
