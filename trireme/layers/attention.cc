// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/check.h"
#include "trireme/layers/attention_blocks.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BlockAttention : torch::autograd::Function<BlockAttention> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, int64_t queries_at, int64_t keys_at,
                               const c10::optional<at::Tensor>& given) {
    const AttentionMask mask{queries_at, keys_at, given.value_or(at::Tensor())};
    const at::Tensor asked = detail::computed(q);
    const auto options = asked.options().requires_grad(false);
    at::Tensor out = at::empty(q.sizes(), options);
    const at::Tensor logs = at::empty({q.size(0), q.size(2), q.size(1)}, options);
    detail::attend_block(asked, detail::computed(k), detail::computed(v), mask, out, logs,
                         /*first=*/true);
    out = out.to(q.scalar_type());
    ctx->save_for_backward({q, k, v, out, logs, mask.starts});
    ctx->saved_data["queries_at"] = queries_at;
    ctx->saved_data["keys_at"] = keys_at;
    ctx->mark_non_differentiable({logs});
    return {out, logs};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor none;
    if (!grads[0].defined()) return {none, none, none, none, none, none};
    const auto saved = ctx->get_saved_variables();
    const AttentionMask mask{ctx->saved_data["queries_at"].toInt(),
                             ctx->saved_data["keys_at"].toInt(), saved[5]};
    const auto type = saved[0].scalar_type();
    const at::Tensor q = detail::computed(saved[0]), k = detail::computed(saved[1]),
                     v = detail::computed(saved[2]);
    const auto like = [](const at::Tensor& t) { return at::empty(t.sizes(), t.options()); };
    const detail::BlockGradients d{like(q), like(k), like(v)};
    detail::attend_block_backward(q, k, v, mask, detail::computed(saved[3]),
                                  detail::computed(grads[0]), saved[4], d);
    return {d.dq.to(type), d.dk.to(type), d.dv.to(type), none, none, none};
  }
};

}  // namespace

Attended attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const AttentionMask& mask) {
  detail::check_heads(q, k, v, "attention");
  detail::check_places(q.size(0), q.size(1), q.device(), mask, "attention");
  c10::optional<at::Tensor> starts;
  if (mask.starts.defined()) starts = mask.starts;
  const auto both = BlockAttention::apply(q, k, v, mask.queries_at, mask.keys_at, starts);
  return {both[0], both[1]};
}

}  // namespace trireme
