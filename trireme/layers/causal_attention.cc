// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/causal_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <type_traits>

#include "trireme/base/check.h"
#include "trireme/layers/attention_kernels.h"
#include "trireme/layers/causal_attention_aten.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

using detail::attention_shape;
using detail::AttentionShape;
using detail::HeadRows;

// bfloat16 is stored and computed in float32: what is kept for backward stays small.
at::Tensor computed(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 ? t.to(at::kFloat) : t;
}

// All places of a row against all. `starts` keeps the memory of where documents start; undefined:
// rows are one each.
detail::AttentionBlock whole_row(const AttentionShape& s, const at::Tensor& starts) {
  detail::AttentionBlock block{s.batch, s.time, s.time, s.heads, s.heads, s.width};
  if (!starts.defined()) return block;
  block.starts = host_data<int64_t>(starts);
  block.starts_row = s.time;
  for (int64_t i = 0; i < starts.numel(); ++i)
    check<UsageError>(block.starts[i] >= 0 && block.starts[i] <= i % s.time,
                      "causal_attention: the document of place {} of row {} starts at {}, which is "
                      "not in 0 … {}",
                      i % s.time, i / s.time, block.starts[i], i % s.time);
  return block;
}

// Queries, keys and values of a fused projection, where they lie.
template <class T>
struct Packed {
  Packed(const AttentionShape& s, T* qkv)
      : q{qkv, s.time * s.row(), s.row()},
        k{qkv + s.out_row(), q.batch, q.row},
        v{qkv + 2 * s.out_row(), q.batch, q.row} {}
  HeadRows<T> q, k, v;
};
template <class T>
HeadRows<T> side_by_side(const AttentionShape& s, T* out) {
  return {out, s.time * s.out_row(), s.out_row()};
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input,
                            int64_t heads, const c10::optional<at::Tensor>& given) {
    const at::Tensor starts = given ? given->contiguous() : at::Tensor();
    const AttentionShape s = attention_shape(input, heads);
    const auto block = whole_row(s, starts);
    const at::Tensor kept = input.contiguous();
    auto qkv = computed(kept);
    auto out = at::empty({s.batch, s.time, s.out_row()}, qkv.options());
    auto logs = at::empty({s.batch, s.heads, s.time}, qkv.options());
    const auto run = [&](auto* in) {
      using T = std::remove_pointer_t<decltype(in)>;
      const Packed<const T> of(s, in);
      detail::attention_forward<T>(block, of.q, of.k, of.v, side_by_side(s, host_data<T>(out)),
                                   {host_data<T>(logs), s.time}, /*first=*/true);
    };
    if (qkv.scalar_type() == at::kFloat)
      run(host_data<float>(qkv));
    else
      run(host_data<double>(qkv));
    out = out.to(kept.scalar_type());
    ctx->save_for_backward({kept, out, logs, starts});
    ctx->saved_data["heads"] = heads;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const auto saved = ctx->get_saved_variables();
    const AttentionShape s = attention_shape(saved[0], ctx->saved_data["heads"].toInt());
    const auto block = whole_row(s, saved[3]);
    const auto type = saved[0].scalar_type();
    const at::Tensor qkv = computed(saved[0]), out = computed(saved[1]), &logs = saved[2];
    auto dout = computed(grads[0].contiguous());
    auto dqkv = at::empty(qkv.sizes(), qkv.options());
    const auto run = [&](auto* gradients) {
      using T = std::remove_pointer_t<decltype(gradients)>;
      const Packed<const T> of(s, host_data<T>(qkv));
      const Packed<T> to(s, gradients);
      detail::attention_backward<T>(block, of.q, of.k, of.v,
                                    side_by_side<const T>(s, host_data<T>(out)),
                                    side_by_side<const T>(s, host_data<T>(dout)),
                                    {host_data<T>(logs), s.time}, {to.q, to.k, to.v});
    };
    if (dqkv.scalar_type() == at::kFloat)
      run(host_data<float>(dqkv));
    else
      run(host_data<double>(dqkv));
    return {dqkv.to(type), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts) {
  const bool ours = qkv.device().is_cpu() &&
                    (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kDouble ||
                     qkv.scalar_type() == at::kBFloat16);
  if (!ours || qkv.numel() == 0) return detail::causal_attention_aten(qkv, heads, starts);
  c10::optional<at::Tensor> given;
  if (starts.defined()) {
    detail::check_starts(starts, attention_shape(qkv, heads), qkv);
    given = starts;
  }
  return CausalAttention::apply(qkv, heads, given);
}

}  // namespace trireme
