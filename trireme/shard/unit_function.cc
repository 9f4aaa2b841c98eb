// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/unit_function.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Bound : torch::CustomClassHolder {
  explicit Bound(std::shared_ptr<UnitEnds> ends) : ends(std::move(ends)) {}
  std::shared_ptr<UnitEnds> ends;
};

struct BoundInputs : Bound {
  using Bound::Bound;
  ~BoundInputs() override {
    if (!came && ends->dropped) ends->dropped();
  }
  bool came = false;
};

// The same memory, but no view: a block may work in place on what it is given.
variable_list same(at::TensorList tensors) {
  variable_list list;
  for (const at::Tensor& t : tensors) list.push_back(t.detach());
  return list;
}

variable_list and_nothing_for(variable_list gradients) {
  gradients.emplace_back();  // the holder's
  return gradients;
}

struct Enter : torch::autograd::Function<Enter> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               c10::intrusive_ptr<BoundInputs> bound) {
    context->set_materialize_grads(false);
    context->saved_data["bound"] = c10::IValue::make_capsule(std::move(bound));
    return same(tensors);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = context->saved_data["bound"].toCapsule();
    auto& bound = static_cast<BoundInputs&>(*holder);
    bound.came = true;
    bound.ends->at_inputs();
    return and_nothing_for(std::move(gradients));
  }
};

struct Exit : torch::autograd::Function<Exit> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               c10::intrusive_ptr<Bound> bound) {
    context->set_materialize_grads(false);
    context->saved_data["bound"] = c10::IValue::make_capsule(std::move(bound));
    return same(tensors);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = context->saved_data["bound"].toCapsule();
    static_cast<Bound&>(*holder).ends->at_outputs();
    return and_nothing_for(std::move(gradients));
  }
};

template <class Node, class Holder>
std::vector<at::Tensor> through(const std::vector<at::Tensor>& tensors,
                                std::shared_ptr<UnitEnds> ends, bool* any) {
  std::vector<at::Tensor> wanted, result = tensors;
  for (const at::Tensor& t : tensors)
    if (t.defined() && t.requires_grad()) wanted.push_back(t);
  *any = !wanted.empty() && at::GradMode::is_enabled();
  if (!*any) return result;
  const variable_list passed =
      Node::apply(at::TensorList(wanted), c10::make_intrusive<Holder>(std::move(ends)));
  auto next = passed.begin();
  for (at::Tensor& t : result)
    if (t.defined() && t.requires_grad()) t = *next++;
  return result;
}

}  // namespace

std::vector<at::Tensor> bound_inputs(const std::vector<at::Tensor>& inputs,
                                     std::shared_ptr<UnitEnds> ends, bool* bound) {
  return through<Enter, BoundInputs>(inputs, std::move(ends), bound);
}

std::vector<at::Tensor> bound_outputs(const std::vector<at::Tensor>& outputs,
                                      std::shared_ptr<UnitEnds> ends) {
  bool any = false;
  return through<Exit, Bound>(outputs, std::move(ends), &any);
}

}  // namespace trireme
