// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/causal_attention_aten.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/layers/causal_attention.h"
#include "trireme/tensor/attention_compat.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

using detail::attention_shape;
using detail::AttentionShape;

/// Queries, keys and values as [batch, heads, time, width], where they lie.
struct Heads {
  Heads(const at::Tensor& qkv, const AttentionShape& s)
      : parts(qkv.view({s.batch, s.time, 3, s.heads, s.width}).permute({2, 0, 3, 1, 4})),
        q(parts.select(0, 0)),
        k(parts.select(0, 1)),
        v(parts.select(0, 2)) {}
  at::Tensor parts, q, k, v;
};

at::Tensor side_by_side(const at::Tensor& out, const AttentionShape& s) {
  return out.transpose(1, 2).reshape({s.batch, s.time, s.out_row()});
}

}  // namespace

AttentionShape detail::attention_shape(const at::Tensor& qkv, int64_t heads) {
  check<UsageError>(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
                    "causal_attention: qkv must be [batch, time, 3 × {} heads × width], and has {} "
                    "dims, the last {}",
                    heads, qkv.dim(), qkv.dim() ? qkv.size(-1) : 0);
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

void detail::check_starts(const at::Tensor& starts, const AttentionShape& s,
                          const at::Tensor& qkv) {
  check<UsageError>(starts.dim() == 2 && starts.size(0) == s.batch && starts.size(1) == s.time &&
                        starts.scalar_type() == at::kLong && starts.device() == qkv.device(),
                    "causal_attention: where documents start must be [{}, {}] in int64, on the "
                    "device of qkv",
                    s.batch, s.time);
}

at::Tensor detail::causal_attention_aten(const at::Tensor& qkv, int64_t heads,
                                         const at::Tensor& starts) {
  if (is_asynchronous(qkv.device()) && qkv.numel() > 0 && !starts.defined()) {
    const AttentionShape s = attention_shape(qkv, heads);
    const Heads h(qkv, s);
    if (const auto out = compat::fused_causal_attention(h.q, h.k, h.v))
      return side_by_side(*out, s);
  }
  return plain_causal_attention(qkv, heads, starts);
}

at::Tensor plain_causal_attention(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts) {
  const auto s = attention_shape(qkv, heads);
  const Heads h(qkv, s);
  auto scores =
      at::matmul(h.q, h.k.transpose(-2, -1)).mul(1 / std::sqrt(static_cast<double>(s.width)));
  auto hidden = at::ones({s.time, s.time}, qkv.options().dtype(at::kBool)).triu(1);
  if (starts.defined()) {
    detail::check_starts(starts, s, qkv);
    const auto before = at::arange(s.time, starts.options()).lt(starts.unsqueeze(-1));
    hidden = hidden.logical_or(before.unsqueeze(1));  // [batch, 1, time, time]
  }
  auto p = at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return side_by_side(at::matmul(p, h.v), s);
}

}  // namespace trireme
