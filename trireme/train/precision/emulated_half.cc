// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/precision/emulated_half.h"

#include <ATen/core/grad_mode.h>

#include "trireme/base/check.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

NamedTensors EmulatedHalf::round_parameters(Model& model) {
  at::NoGradGuard no_grad;
  NamedTensors rounded;
  for (const auto& [name, p] : named_parameters(model)) {
    at::Tensor half = p.detach().to(at::kHalf);
    p.detach().copy_(half);
    half.requires_grad_(p.requires_grad());
    rounded.emplace_back(name, half);
  }
  return rounded;
}

EmulatedHalf::EmulatedHalf(std::shared_ptr<Model> model, const NamedTensors& parameters,
                           std::function<void(size_t)> ready)
    : model_(std::move(model)), ready_(std::move(ready)) {
  const auto copies = named_parameters(*model_);
  check<UsageError>(copies.size() == parameters.size(),
                    "fp16.emulate: {} parameters for a model of {}", parameters.size(),
                    copies.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    const at::Tensor& copy = copies[i].second;
    all_.push_back({parameters[i].second, copy, StorageMark(copy)});
    if (!copy.requires_grad()) continue;
    const size_t index = trained_.size();
    trained_.push_back(all_.back());
    hooks_.push_back(std::make_unique<compat::GradHook>(copy, [this, index] { arrived(index); }));
  }
}

// torch::load() gives a copy new storage, and autograd then drops its hook. The parameter gets new
// storage too, so that holders of a master copy or shard of it follow.
void EmulatedHalf::follow() {
  for (auto& [half, copy, mark] : all_) {
    if (!mark.moved(copy)) continue;
    check<UsageError>(mark.fits(copy),
                      "fp16.emulate: a parameter of the model is {} with {} elements now: load "
                      "values of the model's own shapes, in float32",
                      c10::toString(copy.scalar_type()), copy.numel());
    half.set_data(copy.detach().to(at::kHalf));
    mark = StorageMark(copy);
  }
  for (size_t i = 0; i < trained_.size(); ++i)
    if (!hooks_[i]->is_on(trained_[i].copy))
      hooks_[i] = std::make_unique<compat::GradHook>(trained_[i].copy, [this, i] { arrived(i); });
}

EmulatedHalf::~EmulatedHalf() = default;

std::vector<at::Tensor> EmulatedHalf::forward_list(const std::vector<at::Tensor>& inputs) {
  {
    at::NoGradGuard no_grad;
    follow();
    for (const auto& [half, copy, mark] : all_) copy.detach().copy_(half);
  }
  return model_->forward_list(inputs);
}

void EmulatedHalf::arrived(size_t i) {
  at::NoGradGuard no_grad;
  auto& [half, copy, mark] = trained_[i];
  at::Tensor& wide = copy.mutable_grad();
  at::Tensor& sum = half.mutable_grad();
  const at::Tensor rounded = wide.to(at::kHalf);
  wide = at::Tensor();
  if (sum.defined())
    sum.add_(rounded);
  else
    sum = rounded;
  ready_(i);
}

}  // namespace trireme
