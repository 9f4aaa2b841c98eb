// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rules/rule_aten.h"

#include <ATen/ops/maximum.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace trireme {

// add_() with a factor may be fused; a product and a sum are not, so that every line below rounds
// as its line in rule_kernels.cc does.
namespace {

at::Tensor scaled_gradient(const at::Tensor& p, const at::Tensor& g, double scale, double l2) {
  at::Tensor grad = g.mul(scale);
  if (l2 != 0) grad.add_(p.mul(l2));
  return grad;
}

// moment × rate + rest × x
void decay(at::Tensor& moment, double rate, double rest, const at::Tensor& x) {
  moment.mul_(rate).add_(x.mul(rest));
}
void decay_square(at::Tensor& moment, double rate, double rest, const at::Tensor& x) {
  moment.mul_(rate).add_(x.mul(rest).mul_(x));
}

// `most` is undefined without amsgrad.
void adam(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v, at::Tensor most,
          const AdamWScalars& s) {
  c10::AutoGradMode no_grad(false);
  const at::Tensor grad = scaled_gradient(p, g, s.grad_scale, s.l2);
  decay(m, s.beta1, 1 - s.beta1, grad);
  decay_square(v, s.beta2, 1 - s.beta2, grad);
  if (most.defined()) most.copy_(at::maximum(most, v));
  const at::Tensor root = (most.defined() ? most : v).sqrt().mul_(s.root_scale).add_(s.eps);
  p.mul_(s.keep).sub_(m.div(root).mul_(s.step_size));
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
  at::Tensor grad = scaled_gradient(p, g, s.grad_scale, s.weight_decay);
  if (s.momentum != 0) {
    decay(m, s.momentum, s.gain, grad);
    if (s.nesterov)
      grad.add_(m.mul(s.momentum));
    else
      grad = m;
  }
  p.sub_(grad.mul(s.lr));
}

void lion_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const LionScalars& s) {
  c10::AutoGradMode no_grad(false);
  const at::Tensor grad = g.mul(s.grad_scale);
  const at::Tensor direction = m.mul(s.beta1).add_(grad.mul(1 - s.beta1)).sign_();
  p.mul_(s.keep).sub_(direction.mul(s.lr));
  decay(m, s.beta2, 1 - s.beta2, grad);
}

void rmsprop_pass(at::Tensor p, const at::Tensor& g, at::Tensor v, at::Tensor mean,
                  at::Tensor buffer, const RmspropScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor grad = scaled_gradient(p, g, s.grad_scale, s.l2);
  decay_square(v, s.alpha, 1 - s.alpha, grad);
  at::Tensor spread = v;
  if (s.centered) {
    decay(mean, s.alpha, 1 - s.alpha, grad);
    spread = v.sub(mean.mul(mean)).clamp_min_(0);
  }
  at::Tensor step = grad.div_(spread.sqrt().add_(s.eps));
  if (s.momentum != 0) step = buffer.mul_(s.momentum).add_(step);
  p.sub_(step.mul(s.lr));
}

void adagrad_pass(at::Tensor p, const at::Tensor& g, at::Tensor sum, const AdagradScalars& s) {
  c10::AutoGradMode no_grad(false);
  const at::Tensor grad = scaled_gradient(p, g, s.grad_scale, s.l2);
  sum.add_(grad.mul(grad));
  p.sub_(grad.div(sum.sqrt().add_(s.eps)).mul_(s.lr));
}

void lars_pass(at::Tensor p, const at::Tensor& g, at::Tensor buffer, const LarsScalars& s) {
  c10::AutoGradMode no_grad(false);
  at::Tensor step = g.mul(s.grad_scale).add_(p.mul(s.weight_decay)).mul_(s.rate);
  if (s.momentum != 0) step = buffer.mul_(s.momentum).add_(step);
  p.sub_(step);
}

void lamb_moments(const at::Tensor& g, at::Tensor m, at::Tensor v, const LambScalars& s) {
  c10::AutoGradMode no_grad(false);
  const at::Tensor grad = g.mul(s.grad_scale);
  decay(m, s.beta1, 1 - s.beta1, grad);
  decay_square(v, s.beta2, 1 - s.beta2, grad);
}

at::Tensor lamb_direction(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v,
                          const LambScalars& s) {
  c10::AutoGradMode no_grad(false);
  const at::Tensor root = v.sqrt().mul_(s.root_scale).add_(s.eps);
  return m.mul(s.moment_scale).div_(root).add_(p.mul(s.weight_decay));
}

void lamb_update(at::Tensor p, const at::Tensor& m, const at::Tensor& v, const LambScalars& s,
                 double step) {
  c10::AutoGradMode no_grad(false);
  p.sub_(lamb_direction(p, m, v, s).mul_(step));
}

namespace {

at::Tensor root_mean_square(const at::Tensor& x) {
  const double n = static_cast<double>(std::max<int64_t>(1, x.numel()));
  return x.detach().to(at::kDouble).square().sum().div_(n).sqrt_();
}

}  // namespace

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
  // AdafactorScalars::step(), of numbers that stay where they are.
  at::Tensor step = root_mean_square(u).div_(s.clip).clamp_min_(1).reciprocal_().mul_(s.lr);
  if (s.scale_parameter) step.mul_(root_mean_square(p).clamp_min_(s.eps2));
  p.mul_(s.keep).sub_(u.mul_(step));
}

}  // namespace trireme
