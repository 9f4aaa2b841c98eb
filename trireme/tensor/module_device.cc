// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/module_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <optional>
#include <string>

#include "trireme/base/check.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

void move(const at::Tensor& t, at::Device where) {
  if (!t.defined() || t.device() == where) return;
  const at::NoGradGuard no_grad;
  if (at::Tensor grad = t.grad(); grad.defined()) {
    t.mutable_grad() = at::Tensor();
    move(t, where);
    t.mutable_grad() = grad.to(where);
    return;
  }
  const at::Tensor there = t.detach().to(where);
  t.unsafeGetTensorImpl()->shallow_copy_from(there.getIntrusivePtr());
  // Made on the device before, it would look for gradients there.
  if (auto* autograd = torch::autograd::impl::get_autograd_meta(t))
    autograd->grad_accumulator_.reset();
}

}  // namespace

void move_module(torch::nn::Module& module, at::Device where) {
  for (const at::Tensor& parameter : module.parameters()) move(parameter, where);
  for (const at::Tensor& buffer : module.buffers()) move(buffer, where);
}

at::Device device_of(const torch::nn::Module& module) {
  std::optional<at::Device> device;
  std::string first;
  const auto look = [&](const std::string& name, const at::Tensor& t) {
    if (!t.defined()) return;
    if (!device) {
      device = t.device();
      first = name;
    }
    check<UsageError>(*device == t.device(),
                      "the module is on two devices, '{}' on {} and '{}' on {}: put all of it on "
                      "one",
                      first, device_text(*device), name, device_text(t.device()));
  };
  for (const auto& item : module.named_parameters()) look(item.key(), item.value());
  for (const auto& item : module.named_buffers()) look(item.key(), item.value());
  return device.value_or(at::kCPU);
}

}  // namespace trireme
