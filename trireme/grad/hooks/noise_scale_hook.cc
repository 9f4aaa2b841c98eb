// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/noise_scale_hook.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trireme/comm/reachable.h"
#include "trireme/tensor/numbers_of.h"

namespace trireme {

void add_squares(const at::Tensor& flat, at::Tensor& into) {
  if (flat.is_complex()) return add_squares(at::view_as_real(flat).flatten(), into);
  constexpr int64_t kBlock = 1 << 16, kLargest = 1 << 30;  // of a GPU's dot
  const int64_t block = flat.is_cpu() ? kBlock : kLargest;
  for (int64_t i = 0; i < flat.numel(); i += block) {
    at::Tensor part = flat.narrow(0, i, std::min(block, flat.numel() - i));
    if (part.scalar_type() != at::kDouble) part = part.to(at::kFloat);
    into.add_(at::dot(part, part));
  }
}

struct NoiseScaleHook::State {
  CommHook inner;
  at::Tensor squares;  // of this rank's gradients so far
};

NoiseScaleHook::NoiseScaleHook(CommHook inner) : state_(std::make_shared<State>()) {
  if (!inner)
    inner = [](Group& group, GradBucket& bucket, ReduceOp op) {
      return group.all_reduce(bucket.buffer, op);
    };
  state_->inner = std::move(inner);
}

CommHook NoiseScaleHook::hook() const {
  return [state = state_](Group& group, GradBucket& bucket, ReduceOp op) {
    {
      at::NoGradGuard no_grad;
      at::Tensor& squares = state->squares;
      if (!squares.defined())
        squares = at::zeros({}, bucket.buffer.options().dtype(at::kDouble).requires_grad(false));
      add_squares(bucket.buffer, squares);
    }
    return state->inner(group, bucket, op);
  };
}

GradientParts NoiseScaleHook::take(Group& group, double weight, double scale, double norm,
                                   double samples) {
  const double mine = state_->squares.defined() ? state_->squares.item<double>() : 0;
  const std::vector<double> own{weight > 0 ? mine / weight : 0, weight, weight > 0 ? 1.0 : 0.0};
  if (state_->squares.defined()) state_->squares.zero_();
  const at::Tensor sums = at::tensor(
      own, at::TensorOptions(at::kDouble)
               .device(detail::reachable_device(group, Collective::all_reduce, at::kDouble)));
  group.all_reduce(sums).wait();
  const std::vector<double> s = numbers_of<double>(sums);
  // Part r's mean gradient is what it gave × scale × total ÷ its weight, its share weight ÷ total.
  return {scale * scale * s[1] * s[0], norm * norm, static_cast<int64_t>(s[2]), samples};
}

}  // namespace trireme
