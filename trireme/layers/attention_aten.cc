// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention_aten.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <limits>

namespace trireme::detail {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// The queries of the heads that share a key/value head lie one behind the other, so that a product
/// with it is one of matrices, and the keys are not repeated.
struct Grouped {
  Grouped(const at::Tensor& q, const at::Tensor& k)
      : batch(q.size(0)), queries(q.size(1)), kv(k.size(2)), each(q.size(2) / kv), d(q.size(3)) {}
  /// [batch, kv, each · queries, d] of [batch, queries, heads, d], and back.
  at::Tensor by_head(const at::Tensor& t) const {
    return t.reshape({batch, queries, kv, each, d})
        .permute({0, 2, 3, 1, 4})
        .reshape({batch, kv, each * queries, d});
  }
  at::Tensor side_by_side(const at::Tensor& t) const {
    return t.view({batch, kv, each, queries, d})
        .permute({0, 3, 1, 2, 4})
        .reshape({batch, queries, kv * each, d});
  }
  /// [batch, kv, each · queries, 1] of [batch, heads, queries].
  at::Tensor a_row(const at::Tensor& t) const { return t.reshape({batch, kv, each * queries, 1}); }
  /// Scores; what is not seen is -∞.
  at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask) const {
    const at::Tensor s =
        at::matmul(by_head(q), k.permute({0, 2, 3, 1})).mul_(1 / std::sqrt(static_cast<double>(d)));
    const auto numbers = q.options().dtype(at::kLong);
    const at::Tensor key = at::arange(mask.keys_at, mask.keys_at + k.size(1), numbers);
    const at::Tensor query = at::arange(mask.queries_at, mask.queries_at + queries, numbers);
    at::Tensor hidden = key.gt(query.unsqueeze(1));
    if (mask.starts.defined())
      hidden = hidden.logical_or(key.lt(mask.starts.unsqueeze(-1)))
                   .view({batch, 1, 1, queries, k.size(1)});
    s.view({batch, kv, each, queries, k.size(1)}).masked_fill_(hidden, kNothing);
    return s;
  }

  int64_t batch, queries, kv, each, d;
};

// What may be subtracted from scores: 0 in place of -∞, where nothing is seen.
at::Tensor finite(const at::Tensor& logs) { return logs.masked_fill(logs.eq(kNothing), 0); }

at::Tensor heads_first(const at::Tensor& t) { return t.permute({0, 2, 1, 3}); }

void put(const at::Tensor& to, const at::Tensor& value, bool adds) {
  if (adds)
    to.add_(value);
  else
    to.copy_(value);
}

}  // namespace

void attention_aten(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionMask& mask, const at::Tensor& out, const at::Tensor& log_sums,
                    bool first) {
  const Grouped g(q, k);
  at::Tensor p = g.scores(q, k, mask);
  const at::Tensor log = at::logsumexp(p, {-1}, /*keepdim=*/true);
  p.sub_(finite(log)).exp_();
  const at::Tensor o = g.side_by_side(at::matmul(p, heads_first(v)));
  const at::Tensor logs = log.view(log_sums.sizes());
  if (first) {
    out.copy_(o);
    log_sums.copy_(logs);
    return;
  }
  const at::Tensor both = at::logaddexp(log_sums, logs), shift = finite(both);
  const auto share = [&](const at::Tensor& part) {
    return part.sub(shift).exp_().transpose(1, 2).unsqueeze(-1);
  };
  out.mul_(share(log_sums)).add_(o.mul(share(logs)));
  log_sums.copy_(both);
}

void attention_backward_aten(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionMask& mask, const at::Tensor& out,
                             const at::Tensor& dout, const at::Tensor& log_sums,
                             const BlockGradients& gradients) {
  const Grouped g(q, k);
  const double scale = 1 / std::sqrt(static_cast<double>(g.d));
  const at::Tensor p = g.scores(q, k, mask).sub_(finite(g.a_row(log_sums))).exp_();
  const at::Tensor go = g.by_head(dout);
  const at::Tensor delta = dout.mul(out).sum(-1).transpose(1, 2);
  put(gradients.dv, heads_first(at::matmul(p.transpose(2, 3), go)), gradients.adds_dkv);
  const at::Tensor ds =
      at::matmul(go, heads_first(v).transpose(2, 3)).sub_(g.a_row(delta)).mul_(p).mul_(scale);
  put(gradients.dq, g.side_by_side(at::matmul(ds, heads_first(k))), gradients.adds_dq);
  put(gradients.dk, heads_first(at::matmul(ds.transpose(2, 3), g.by_head(q))), gradients.adds_dkv);
}

}  // namespace trireme::detail
