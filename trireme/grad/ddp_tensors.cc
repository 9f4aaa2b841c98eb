// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/ddp_tensors.h"

#include <torch/nn/modules/embedding.h>

namespace trireme {
namespace {

void add_parameter(DdpTensors& to, const std::string& name, const at::Tensor& p) {
  if (p.defined()) (p.requires_grad() ? to.parameters : to.frozen).emplace_back(name, p);
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
  DdpTensors all;
  for (const auto& item : module.named_parameters()) add_parameter(all, item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) all.buffers.emplace_back(item.key(), item.value());
  find_sparse(module, "", all);
  return all;
}

DdpTensors ddp_tensors(const NamedTensors& parameters, NamedTensors buffers) {
  DdpTensors all;
  for (const auto& [name, p] : parameters) add_parameter(all, name, p);
  all.buffers = std::move(buffers);
  return all;
}

}  // namespace trireme
