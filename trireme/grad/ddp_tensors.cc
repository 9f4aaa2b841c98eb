// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/ddp_tensors.h"

#include <torch/nn/modules/embedding.h>

namespace trireme {
namespace {

DdpTensors each_once(const NamedTensors& parameters, const NamedTensors& buffers) {
  DdpTensors all;
  const NamedTensors once = unique_tensors(parameters, &all.tied);
  for (const auto& [name, p] : once)
    if (p.defined()) (p.requires_grad() ? all.parameters : all.frozen).emplace_back(name, p);
  all.buffers = unique_tensors(buffers, &all.tied, once);
  return all;
}

// Layers that can say that they will give sparse gradients.
void find_sparse(const torch::nn::Module& module, const std::string& prefix, DdpTensors& to) {
  const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module);
  const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module);
  if ((embedding && embedding->options.sparse()) || (bag && bag->options.sparse()))
    to.sparse.push_back(prefix + "weight");
  for (const auto& child : module.named_children())
    find_sparse(*child.value(), prefix + child.key() + ".", to);
}

}  // namespace

DdpTensors ddp_tensors(const torch::nn::Module& module) {
  NamedTensors parameters, buffers;
  for (const auto& item : module.named_parameters())
    parameters.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) buffers.emplace_back(item.key(), item.value());
  DdpTensors all = each_once(parameters, buffers);
  find_sparse(module, "", all);
  all.sparse = with_first_names(all.sparse, all.tied);
  return all;
}

DdpTensors ddp_tensors(const NamedTensors& parameters, const NamedTensors& buffers) {
  return each_once(parameters, buffers);
}

}  // namespace trireme
