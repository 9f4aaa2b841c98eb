// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/tied_tensors.h"

#include <torch/nn/module.h>

#include <unordered_map>

namespace trireme {
namespace {

template <class Dict>
NamedTensors list_of(const Dict& items) {
  NamedTensors list;
  for (const auto& item : items) list.emplace_back(item.key(), item.value());
  return list;
}

}  // namespace

NamedTensors unique_tensors(const NamedTensors& tensors, TiedNames* tied,
                            const NamedTensors& known) {
  std::unordered_map<const at::TensorImpl*, const std::string*> first;
  for (const auto& [name, t] : known)
    if (t.defined()) first.emplace(t.unsafeGetTensorImpl(), &name);
  NamedTensors once;
  once.reserve(tensors.size());
  for (const auto& [name, t] : tensors) {
    // Undefined ones are not each other; who cannot take them says so.
    const auto [place, fresh] =
        t.defined() ? first.emplace(t.unsafeGetTensorImpl(), &name) : std::pair(first.end(), true);
    if (fresh)
      once.emplace_back(name, t);
    else if (tied && *place->second != name)
      tied->push_back({name, *place->second});
  }
  return once;
}

NamedTensors named_parameters(const torch::nn::Module& module, TiedNames* tied) {
  return unique_tensors(list_of(module.named_parameters()), tied);
}

NamedTensors named_buffers(const torch::nn::Module& module, TiedNames* tied) {
  return unique_tensors(list_of(module.named_buffers()), tied);
}

std::vector<std::string> with_first_names(const std::vector<std::string>& patterns,
                                          const TiedNames& tied) {
  std::vector<std::string> all;
  for (const std::string& pattern : patterns) {
    all.push_back(pattern);
    for (const TiedName& t : tied)
      if (glob_match(pattern, t.name)) all.push_back(t.first);
  }
  return all;
}

}  // namespace trireme
