// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/stage_work.h"

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::pipeline {
namespace {

// The stage before expects one for each, used or not.
Tensors defined(Tensors gradients, const Tensors& of) {
  for (size_t i = 0; i < of.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(of[i]);
  return gradients;
}

}  // namespace

Tensors StageWork::leaves_of(const Tensors& outputs) {
  Tensors leaves;
  for (const at::Tensor& t : outputs) {
    check<UsageError>(t.defined(), "a stage gives an undefined tensor to the next one");
    leaves.push_back(t.detach().set_requires_grad(t.requires_grad()));
  }
  return leaves;
}

Tensors StageWork::trained(const Tensors& tensors) {
  Tensors some;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(some),
               [](const at::Tensor& t) { return t.requires_grad(); });
  return some;
}

void StageWork::backward() {
  const Tensors of = trained(outputs), to = trained(inputs);
  outputs.clear();
  if (!of.empty()) {
    if (output_gradients.empty())
      torch::autograd::backward(of);
    else
      torch::autograd::backward(of, output_gradients);
  }
  input_gradients.clear();
  for (const at::Tensor& t : to) input_gradients.push_back(t.grad());
  input_gradients = defined(std::move(input_gradients), to);
  inputs.clear(), output_gradients.clear();
}

void StageWork::input_gradient() {
  const Tensors to = trained(inputs);
  Tensors of = trained(outputs);
  outputs.clear(), inputs.clear();
  if (of.empty()) {  // frozen, as is all before it
    input_gradients = defined(Tensors(to.size()), to);
    return;
  }
  if (output_gradients.empty()) output_gradients.resize(of.size());
  split.emplace(std::move(of), to);
  input_gradients = split->input_gradients(std::exchange(output_gradients, {}));
  if (to.empty()) input_gradients.clear();
  input_gradients = defined(std::move(input_gradients), to);
}

void StageWork::weight_gradient() {
  if (!split) return;
  split->weight_gradients();
  split.reset();
}

}  // namespace trireme::pipeline
