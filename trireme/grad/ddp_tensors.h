// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/tied_tensors.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace trireme {

/// A model, as DistributedDataParallel sees it: each tensor once, under its first name.
struct DdpTensors {
  NamedTensors parameters;          // require a gradient
  NamedTensors frozen;              // do not: broadcast once
  NamedTensors buffers;             // that are no parameters as well
  TiedNames tied;                   // of all of them
  std::vector<std::string> sparse;  // parameters whose gradients will be sparse
};

DdpTensors ddp_tensors(const torch::nn::Module& module);
DdpTensors ddp_tensors(const torch::jit::Module& module);
DdpTensors ddp_tensors(const NamedTensors& parameters, const NamedTensors& buffers);
/// ddp_tensors(module), whenever it is called; keeps the module.
std::function<DdpTensors()> list_later(const torch::jit::Module& module);

}  // namespace trireme
