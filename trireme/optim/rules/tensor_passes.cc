// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rules/tensor_passes.h"

#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace trireme {

namespace {

// `most` is undefined without amsgrad.
void adam(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v, at::Tensor most,
          const AdamWScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  if (s.l2 != 0) grad.add_(p, s.l2);
  m.mul_(s.beta1).add_(grad, 1 - s.beta1);
  v.mul_(s.beta2).addcmul_(grad, grad, 1 - s.beta2);
  if (most.defined()) most.copy_(at::maximum(most, v));
  at::Tensor root = (most.defined() ? most : v).sqrt().mul_(s.root_scale).add_(s.eps);
  p.mul_(s.keep).addcdiv_(m, root, -s.step_size);
}

}  // namespace

void adamw_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, at::Tensor v,
                const AdamWScalars& s) {
  adam(p, g, m, v, {}, s);
}

void amsgrad_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, at::Tensor v, at::Tensor most,
                  const AdamWScalars& s) {
  adam(p, g, m, v, most, s);
}

void sgd_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const SgdScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  if (s.weight_decay != 0) grad.add_(p, s.weight_decay);
  if (s.momentum != 0) {
    m.mul_(s.momentum).add_(grad, s.gain);
    if (s.nesterov)
      grad.add_(m, s.momentum);
    else
      grad = m;
  }
  p.add_(grad, -s.lr);
}

void lion_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const LionScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  at::Tensor direction = m.mul(s.beta1).add_(grad, 1 - s.beta1).sign_();
  p.mul_(s.keep).add_(direction, -s.lr);
  m.mul_(s.beta2).add_(grad, 1 - s.beta2);
}

void rmsprop_pass(at::Tensor p, const at::Tensor& g, at::Tensor v, at::Tensor mean,
                  at::Tensor buffer, const RmspropScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  if (s.l2 != 0) grad.add_(p, s.l2);
  v.mul_(s.alpha).addcmul_(grad, grad, 1 - s.alpha);
  at::Tensor spread = v;
  if (s.centered) {
    mean.mul_(s.alpha).add_(grad, 1 - s.alpha);
    spread = v.sub(mean.square()).clamp_min_(0);
  }
  at::Tensor step = grad.div_(spread.sqrt().add_(s.eps));
  if (s.momentum != 0) step = buffer.mul_(s.momentum).add_(step);
  p.add_(step, -s.lr);
}

void adagrad_pass(at::Tensor p, const at::Tensor& g, at::Tensor sum, const AdagradScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  if (s.l2 != 0) grad.add_(p, s.l2);
  sum.addcmul_(grad, grad, 1);
  p.addcdiv_(grad, sum.sqrt().add_(s.eps), -s.lr);
}

void lars_pass(at::Tensor p, const at::Tensor& g, at::Tensor buffer, const LarsScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor step = g.mul(s.grad_scale).add_(p, s.weight_decay).mul_(s.rate);
  if (s.momentum != 0) step = buffer.mul_(s.momentum).add_(step);
  p.sub_(step);
}

void lamb_moments(const at::Tensor& g, at::Tensor m, at::Tensor v, const LambScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = g.mul(s.grad_scale);
  m.mul_(s.beta1).add_(grad, 1 - s.beta1);
  v.mul_(s.beta2).addcmul_(grad, grad, 1 - s.beta2);
}

at::Tensor lamb_direction(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v,
                          const LambScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor root = v.sqrt().mul_(s.root_scale).add_(s.eps);
  return m.mul(s.moment_scale).div_(root).add_(p, s.weight_decay);
}

void lamb_update(at::Tensor p, const at::Tensor& m, const at::Tensor& v, const LambScalars& s,
                 double step) {
  c10::AutoGradMode no_grad(false);
  p.sub_(lamb_direction(p, m, v, s), step);
}

void adafactor_pass(at::Tensor p, const at::Tensor& g, at::Tensor row, at::Tensor column,
                    const AdafactorScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor u = g.mul(s.grad_scale);
  const at::Tensor squares = u.square().add_(s.eps1);
  column.mul_(s.beta2).add_(squares.mean(0), 1 - s.beta2);
  if (row.defined()) {
    row.mul_(s.beta2).add_(squares.mean(1), 1 - s.beta2);
    u.mul_(row.div(row.mean()).rsqrt_().unsqueeze(1));
  }
  u.mul_(column.rsqrt());
  const double n = static_cast<double>(std::max<int64_t>(1, p.numel()));
  const double step = s.step(std::sqrt(square_sum(p) / n), std::sqrt(square_sum(u) / n));
  p.mul_(s.keep).sub_(u, step);
}

double square_sum(const at::Tensor& x) {
  c10::AutoGradMode no_grad(false);
  return x.detach().to(at::kDouble).square().sum().item<double>();
}

}  // namespace trireme
