// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/round_begin.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme {
namespace {

struct Begin : torch::autograd::Function<Begin> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::shared_ptr<std::function<void()>> begin) {
    context->saved_data["begin"] =
        c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(begin)));
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto holder = context->saved_data["begin"].toCapsule();
    (*static_cast<Holder*>(holder.get())->begin)();
    return {gradients[0], at::Tensor()};
  }
  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<std::function<void()>> f) : begin(std::move(f)) {}
    std::shared_ptr<std::function<void()>> begin;
  };
};

}  // namespace

at::Tensor begin_round_with(const at::Tensor& output, std::function<void()> begin) {
  if (!output.defined() || !output.requires_grad() || !at::GradMode::is_enabled()) return output;
  return Begin::apply(output, std::make_shared<std::function<void()>>(std::move(begin)));
}

}  // namespace trireme
