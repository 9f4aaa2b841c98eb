// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/jit/api/module.h>

#include "trireme/grad/ddp_tensors.h"

namespace trireme {

DdpTensors ddp_tensors(const torch::jit::Module& module) {
  NamedTensors parameters, buffers;
  for (const auto& item : module.named_parameters()) parameters.emplace_back(item.name, item.value);
  for (const auto& item : module.named_buffers()) buffers.emplace_back(item.name, item.value);
  return ddp_tensors(parameters, buffers);
}

std::function<DdpTensors()> list_later(const torch::jit::Module& module) {
  return [module] { return ddp_tensors(module); };
}

}  // namespace trireme
