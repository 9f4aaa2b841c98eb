// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/module_state.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <unordered_set>

#include "trireme/base/check.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {
namespace {

// A parameter of which this rank holds a part, box by box: they lie one after another in dim 0.
void show_parts(const std::string& name, const at::Tensor& p, const ParameterLayout& layout,
                StateVisitor& v) {
  show_contiguous(p, [&](at::Tensor t) {
    int64_t row = 0;
    for (const Slice& slice : slices_of(name, layout)) {
      v.tensor(slice, t.narrow(0, row, slice.lengths[0]));
      row += slice.lengths[0];
    }
  });
}

void show_module(const NamedTensors& parameters, const NamedTensors& buffers, StateVisitor& v,
                 const ParameterLayouts& layouts = {}) {
  std::unordered_set<const at::TensorImpl*> shown;
  for (const auto& [name, p] : parameters) {
    if (!p.defined()) continue;
    check<UsageError>(
        p.numel() == 0 || p.storage().data_ptr().get() != nullptr,
        "state_of: the storage of parameter '{}' has been freed because a "
        "FullySharded holds its shards: use state_of(sharded) instead of the module's",
        name);
    shown.insert(p.unsafeGetTensorImpl());
    const auto layout = layouts.find(name);
    if (layout != layouts.end() && !layout->second.is_whole()) {
      show_parts("model." + name, p.detach(), layout->second, v);
      continue;
    }
    show_contiguous(p.detach(), [&](at::Tensor t) { v.tensor("model." + name, std::move(t)); });
  }
  for (const auto& [name, b] : buffers)  // one that is also a parameter has been visited
    if (b.defined() && !shown.count(b.unsafeGetTensorImpl()))
      show_contiguous(b.detach(),
                      [&](at::Tensor t) { v.copy_of_rank_0("model." + name, std::move(t)); });
}

}  // namespace

void show_contiguous(const at::Tensor& t, const std::function<void(at::Tensor)>& show) {
  if (t.is_contiguous()) return show(t);
  at::Tensor copy = t.contiguous();
  const auto before = copy._version();
  show(copy);
  if (copy._version() == before) return;
  at::NoGradGuard no_grad;
  at::Tensor(t).copy_(copy);
}

StateWalk state_of(const torch::nn::Module& module) {
  return [&module](StateVisitor& v) {
    NamedTensors parameters, buffers;
    for (const auto& item : module.named_parameters())
      parameters.emplace_back(item.key(), item.value());
    for (const auto& item : module.named_buffers()) buffers.emplace_back(item.key(), item.value());
    show_module(parameters, buffers, v, layouts_of(module));
  };
}

StateWalk state_of(const torch::jit::Module& module) {
  return [module](StateVisitor& v) {
    NamedTensors parameters, buffers;
    for (const auto& item : module.named_parameters())
      parameters.emplace_back(item.name, item.value);
    for (const auto& item : module.named_buffers()) buffers.emplace_back(item.name, item.value);
    show_module(parameters, buffers, v);
  };
}

}  // namespace trireme
