// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rules/rule_aten.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_minimum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <functional>

namespace trireme {

// add_() with a factor may be fused; a product and a sum are not, so that every line below rounds
// as its line in rule_kernels.cc does. That is why _fused_adamw_ is not used.
namespace {

using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<at::Scalar>;

/// One number of each.
template <class S, class F>
Numbers each(c10::ArrayRef<S> scalars, const F& number) {
  Numbers numbers;
  for (const S& s : scalars) numbers.emplace_back(std::invoke(number, s));
  return numbers;
}
template <class S>
Numbers rest(c10::ArrayRef<S> scalars, double S::*rate) {
  return each(scalars, [rate](const S& s) { return 1 - s.*rate; });
}

template <class S>
Tensors scaled_gradients(at::TensorList p, at::TensorList g, c10::ArrayRef<S> scalars,
                         double S::*l2) {
  Tensors grad = at::_foreach_mul(g, each(scalars, &S::grad_scale));
  // Zero times a parameter is not nothing if that is infinite.
  Tensors decayed, towards;
  Numbers factors;
  for (size_t i = 0; i < p.size(); ++i) {
    if (scalars[i].*l2 == 0) continue;
    decayed.push_back(grad[i]);
    towards.push_back(p[i]);
    factors.emplace_back(scalars[i].*l2);
  }
  if (!decayed.empty()) at::_foreach_add_(decayed, at::_foreach_mul(towards, factors));
  return grad;
}

// moment × rate + gain × x
void decay(at::TensorList moment, const Numbers& rate, const Numbers& gain, at::TensorList x) {
  at::_foreach_mul_(moment, rate);
  at::_foreach_add_(moment, at::_foreach_mul(x, gain));
}
void decay_square(at::TensorList moment, const Numbers& rate, const Numbers& gain,
                  at::TensorList x) {
  Tensors square = at::_foreach_mul(x, gain);
  at::_foreach_mul_(square, x);
  at::_foreach_mul_(moment, rate);
  at::_foreach_add_(moment, square);
}

/// sqrt(x) × scale + eps; without a scale where there are none.
Tensors roots(at::TensorList x, const Numbers& scale, const Numbers& eps) {
  Tensors root = at::_foreach_sqrt(x);
  if (!scale.empty()) at::_foreach_mul_(root, scale);
  at::_foreach_add_(root, eps);
  return root;
}

// p -= step × rate; `step` is nobody else's.
void move(at::TensorList p, at::TensorList step, const Numbers& rate) {
  at::_foreach_mul_(step, rate);
  at::_foreach_sub_(p, step);
}

/// One flat tensor as a list of the shapes of `like`, which are flat themselves.
Tensors as_list(const at::Tensor& flat, at::TensorList like) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& t : like) sizes.push_back(t.numel());
  return flat.split_with_sizes(sizes);
}

}  // namespace

void adamw_pass(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v,
                at::TensorList most, c10::ArrayRef<AdamWScalars> s) {
  using S = AdamWScalars;
  c10::AutoGradMode no_grad(false);
  {
    const Tensors grad = scaled_gradients(p, g, s, &S::l2);
    decay(m, each(s, &S::beta1), rest(s, &S::beta1), grad);
    decay_square(v, each(s, &S::beta2), rest(s, &S::beta2), grad);
  }
  if (!most.empty()) at::_foreach_maximum_(most, v);
  Tensors step = at::_foreach_div(
      m, roots(most.empty() ? v : most, each(s, &S::root_scale), each(s, &S::eps)));
  at::_foreach_mul_(p, each(s, &S::keep));
  move(p, step, each(s, &S::step_size));
}

void adamod_pass(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v,
                 at::TensorList mean, c10::ArrayRef<AdaModScalars> s) {
  using S = AdaModScalars;
  c10::AutoGradMode no_grad(false);
  {
    const Tensors grad = at::_foreach_mul(g, each(s, &S::grad_scale));
    decay(m, each(s, &S::beta1), rest(s, &S::beta1), grad);
    decay_square(v, each(s, &S::beta2), rest(s, &S::beta2), grad);
  }
  Tensors rate = at::_foreach_reciprocal(roots(v, {}, each(s, &S::eps)));
  at::_foreach_mul_(rate, each(s, &S::step_size));
  decay(mean, each(s, &S::beta3), rest(s, &S::beta3), rate);
  at::_foreach_minimum_(rate, mean);
  at::_foreach_mul_(rate, m);
  at::_foreach_mul_(p, each(s, &S::keep));
  at::_foreach_sub_(p, rate);
}

void sgd_pass(at::TensorList p, at::TensorList g, at::TensorList m, c10::ArrayRef<SgdScalars> s) {
  using S = SgdScalars;
  c10::AutoGradMode no_grad(false);
  Tensors step = scaled_gradients(p, g, s, &S::weight_decay);
  if (s[0].momentum != 0) {
    decay(m, each(s, &S::momentum), each(s, &S::gain), step);
    if (s[0].nesterov) {
      at::_foreach_add_(step, at::_foreach_mul(m, each(s, &S::momentum)));
    } else {
      at::_foreach_sub_(p, at::_foreach_mul(m, each(s, &S::lr)));
      return;
    }
  }
  move(p, step, each(s, &S::lr));
}

void lion_pass(at::TensorList p, at::TensorList g, at::TensorList m, c10::ArrayRef<LionScalars> s) {
  using S = LionScalars;
  c10::AutoGradMode no_grad(false);
  const Tensors grad = at::_foreach_mul(g, each(s, &S::grad_scale));
  Tensors direction = at::_foreach_mul(m, each(s, &S::beta1));
  at::_foreach_add_(direction, at::_foreach_mul(grad, rest(s, &S::beta1)));
  // There is no _foreach_sign before LibTorch 2.1.
  direction = as_list(at::cat(direction).sign_(), direction);
  at::_foreach_mul_(p, each(s, &S::keep));
  move(p, direction, each(s, &S::lr));
  decay(m, each(s, &S::beta2), rest(s, &S::beta2), grad);
}

void rmsprop_pass(at::TensorList p, at::TensorList g, at::TensorList v, at::TensorList mean,
                  at::TensorList buffer, c10::ArrayRef<RmspropScalars> s) {
  using S = RmspropScalars;
  c10::AutoGradMode no_grad(false);
  const Numbers gain = rest(s, &S::alpha), eps = each(s, &S::eps);
  Tensors step = scaled_gradients(p, g, s, &S::l2);
  decay_square(v, each(s, &S::alpha), gain, step);
  if (s[0].centered) {
    decay(mean, each(s, &S::alpha), gain, step);
    Tensors spread = at::_foreach_sub(v, at::_foreach_mul(mean, mean));
    // There is no _foreach_clamp_min before LibTorch 2.0.
    spread = as_list(at::cat(spread).clamp_min_(0), spread);
    at::_foreach_div_(step, roots(spread, {}, eps));
  } else {
    at::_foreach_div_(step, roots(v, {}, eps));
  }
  if (s[0].momentum != 0) {
    at::_foreach_mul_(buffer, each(s, &S::momentum));
    at::_foreach_add_(buffer, step);
    at::_foreach_sub_(p, at::_foreach_mul(buffer, each(s, &S::lr)));
  } else {
    move(p, step, each(s, &S::lr));
  }
}

void adagrad_pass(at::TensorList p, at::TensorList g, at::TensorList sum,
                  c10::ArrayRef<AdagradScalars> s) {
  using S = AdagradScalars;
  c10::AutoGradMode no_grad(false);
  Tensors step = scaled_gradients(p, g, s, &S::l2);
  at::_foreach_add_(sum, at::_foreach_mul(step, step));
  at::_foreach_div_(step, roots(sum, {}, each(s, &S::eps)));
  move(p, step, each(s, &S::lr));
}

void lars_pass(at::TensorList p, at::TensorList g, at::TensorList buffer,
               c10::ArrayRef<LarsScalars> s) {
  using S = LarsScalars;
  c10::AutoGradMode no_grad(false);
  Tensors step = at::_foreach_mul(g, each(s, &S::grad_scale));
  at::_foreach_add_(step, at::_foreach_mul(p, each(s, &S::weight_decay)));
  at::_foreach_mul_(step, each(s, &S::rate));
  if (s[0].momentum != 0) {
    at::_foreach_mul_(buffer, each(s, &S::momentum));
    at::_foreach_add_(buffer, step);
    at::_foreach_sub_(p, buffer);
  } else {
    at::_foreach_sub_(p, step);
  }
}

void lamb_moments(at::TensorList g, at::TensorList m, at::TensorList v,
                  c10::ArrayRef<LambScalars> s) {
  using S = LambScalars;
  c10::AutoGradMode no_grad(false);
  const Tensors grad = at::_foreach_mul(g, each(s, &S::grad_scale));
  decay(m, each(s, &S::beta1), rest(s, &S::beta1), grad);
  decay_square(v, each(s, &S::beta2), rest(s, &S::beta2), grad);
}

Tensors lamb_direction(at::TensorList p, at::TensorList m, at::TensorList v,
                       c10::ArrayRef<LambScalars> s) {
  using S = LambScalars;
  c10::AutoGradMode no_grad(false);
  Tensors direction = at::_foreach_mul(m, each(s, &S::moment_scale));
  at::_foreach_div_(direction, roots(v, each(s, &S::root_scale), each(s, &S::eps)));
  at::_foreach_add_(direction, at::_foreach_mul(p, each(s, &S::weight_decay)));
  return direction;
}

void lamb_update(at::TensorList p, at::TensorList m, at::TensorList v, c10::ArrayRef<LambScalars> s,
                 c10::ArrayRef<double> step) {
  c10::AutoGradMode no_grad(false);
  move(p, lamb_direction(p, m, v, s), Numbers(step.begin(), step.end()));
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
