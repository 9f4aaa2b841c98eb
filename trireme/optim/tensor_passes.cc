// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/tensor_passes.h"

#include <c10/core/GradMode.h>

namespace trireme {

void adamw_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, at::Tensor v,
                const AdamWScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  if (s.l2 != 0) grad.add_(p, s.l2);
  m.mul_(s.beta1).add_(grad, 1 - s.beta1);
  v.mul_(s.beta2).addcmul_(grad, grad, 1 - s.beta2);
  at::Tensor root = v.sqrt().mul_(s.root_scale).add_(s.eps);
  p.mul_(s.keep).addcdiv_(m, root, -s.step_size);
}

void sgd_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const SgdScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  if (s.weight_decay != 0) grad.add_(p, s.weight_decay);
  if (s.momentum != 0) {
    m.mul_(s.momentum).add_(grad);
    if (s.nesterov)
      grad.add_(m, s.momentum);
    else
      grad = m;
  }
  p.add_(grad, -s.lr);
}

}  // namespace trireme
