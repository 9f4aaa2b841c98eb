// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/modules.h"

#include <torch/csrc/autograd/variable.h>

namespace trireme::pretend {
namespace {

void move(const at::Tensor& t, c10::Device where) {
  if (!t.defined() || t.device() == where) return;
  TORCH_CHECK(!t.grad().defined(), "move_to() comes before the first backward");
  const at::NoGradGuard no_grad;
  const at::Tensor there = t.detach().to(where);
  t.unsafeGetTensorImpl()->shallow_copy_from(there.getIntrusivePtr());
  // Made by a forward on the device before, it would look for gradients there.
  if (auto* autograd = torch::autograd::impl::get_autograd_meta(t))
    autograd->grad_accumulator_.reset();
}

}  // namespace

void move_to(torch::nn::Module& module, c10::Device where) {
  for (const at::Tensor& parameter : module.parameters()) move(parameter, where);
  for (const at::Tensor& buffer : module.buffers()) move(buffer, where);
}

}  // namespace trireme::pretend
