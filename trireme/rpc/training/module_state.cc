// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/training/module_state.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme::rpc::detail {
namespace {

/// The module's own, under handles whose changes autograd does not count.
StateDict own_state(const torch::nn::Module& module) {
  StateDict state;
  for (const auto& item : module.named_parameters())
    state.emplace(item.key(), item.value().variable_data());
  for (const auto& item : module.named_buffers())
    state.emplace(item.key(), item.value().variable_data());
  return state;
}

}  // namespace

StateDict state_dict_of(const torch::nn::Module& module) {
  StateDict state = own_state(module);
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  return state;
}

void load_state_dict_into(torch::nn::Module& module, const StateDict& state) {
  const StateDict own = own_state(module);
  for (const auto& [name, tensor] : state)
    check<Mismatch>(own.contains(name), "the module has no parameter or buffer '{}'", name);
  for (const auto& [name, tensor] : own) {
    const auto place = state.find(name);
    check<Mismatch>(place != state.end(), "'{}' of the module is not in the state that is loaded",
                    name);
    check<Mismatch>(place->second.defined() && place->second.sizes() == tensor.sizes(),
                    "'{}' has other sizes in the state that is loaded than in the module", name);
  }
  for (const auto& [name, tensor] : own) at::Tensor(tensor).copy_(state.at(name));
}

std::vector<ParameterInfo> parameters_of(const torch::nn::Module& module) {
  std::vector<ParameterInfo> parameters;
  for (const auto& item : module.named_parameters())
    parameters.push_back({item.key(), item.value().sizes().vec(), item.value().requires_grad()});
  return parameters;
}

NamedTensors trained_parameters_of(const torch::nn::Module& module) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

}  // namespace trireme::rpc::detail
