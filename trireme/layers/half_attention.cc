// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/half_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/layers/causal_attention.h"
#include "trireme/layers/causal_attention_aten.h"

namespace trireme {
namespace {

using detail::AttentionShape;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows of a tile: enough for a product to be worth its call, few enough to leave most of the
// invisible half out.
constexpr int64_t kRows = 128;

/// Queries, keys and values as [batch · heads, time, width].
struct Parts {
  Parts(const at::Tensor& qkv, const AttentionShape& shape, at::Tensor document_starts)
      : s(shape), starts(std::move(document_starts)) {
    const at::Tensor all = qkv.view({s.batch, s.time, 3, s.heads, s.width})
                               .permute({2, 0, 3, 1, 4})
                               .reshape({3, s.batch * s.heads, s.time, s.width});
    q = all[0], k = all[1], v = all[2];
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(s.width)); }
  /// [batch · heads, time, width] of [batch, time, heads · width], and back.
  at::Tensor by_head(const at::Tensor& t) const {
    return t.view({s.batch, s.time, s.heads, s.width})
        .transpose(1, 2)
        .reshape({s.batch * s.heads, s.time, s.width});
  }
  at::Tensor side_by_side(const at::Tensor& t) const {
    return t.view({s.batch, s.heads, s.time, s.width})
        .transpose(1, 2)
        .reshape({s.batch, s.time, s.out_row()});
  }

  AttentionShape s;
  at::Tensor starts, q, k, v;
};

/// Rows begin … begin + rows and the keys low … low + columns, of which they see some.
struct Tile {
  Tile(const Parts& p, int64_t from) : begin(from), rows(std::min(kRows, p.s.time - from)) {
    if (p.starts.defined()) low = p.starts.narrow(1, begin, rows).min().item<int64_t>();
    columns = begin + rows - low;
  }
  at::Tensor of_rows(const at::Tensor& t) const { return t.narrow(1, begin, rows); }
  at::Tensor of_keys(const at::Tensor& t) const { return t.narrow(1, low, columns); }

  /// Scores in float32; what is not seen is -∞.
  at::Tensor scores(const Parts& p) const {
    at::Tensor s = at::bmm(of_rows(p.q), of_keys(p.k).transpose(1, 2)).to(at::kFloat);
    const auto numbers = at::TensorOptions(at::kLong);
    const at::Tensor key = at::arange(low, low + columns, numbers);
    at::Tensor hidden = key.gt(at::arange(begin, begin + rows, numbers).unsqueeze(1));
    if (p.starts.defined())  // [batch, 1, rows, columns]
      hidden = hidden.logical_or(key.lt(of_rows(p.starts).unsqueeze(2))).unsqueeze(1);
    s.mul_(p.scale());
    s.view({p.s.batch, p.s.heads, rows, columns})
        .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
    return s;
  }

  int64_t begin, rows, low = 0, columns;
};

struct HalfCausalAttention : torch::autograd::Function<HalfCausalAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, int64_t heads,
                            const c10::optional<at::Tensor>& starts) {
    const at::Tensor qkv = input.contiguous();
    const Parts p(qkv, detail::attention_shape(qkv, heads), starts.value_or(at::Tensor()));
    at::Tensor out = at::empty(p.q.sizes(), p.q.options());
    at::Tensor logs = at::empty({p.q.size(0), p.s.time, 1}, p.q.options().dtype(at::kFloat));
    for (int64_t begin = 0; begin < p.s.time; begin += kRows) {
      const Tile t(p, begin);
      at::Tensor scores = t.scores(p);
      const at::Tensor log = at::logsumexp(scores, {-1}, /*keepdim=*/true);
      t.of_rows(logs).copy_(log);
      const at::Tensor seen = scores.sub_(log).exp_().to(at::kBFloat16);
      t.of_rows(out).copy_(at::bmm(seen, t.of_keys(p.v)));
    }
    out = p.side_by_side(out);
    ctx->save_for_backward({qkv, out, logs, p.starts});
    ctx->saved_data["heads"] = heads;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const auto saved = ctx->get_saved_variables();
    const int64_t heads = ctx->saved_data["heads"].toInt();
    const Parts p(saved[0], detail::attention_shape(saved[0], heads), saved[3]);
    const at::Tensor &logs = saved[2], dout = p.by_head(grads[0].contiguous());
    const at::Tensor delta =
        dout.to(at::kFloat).mul(p.by_head(saved[1]).to(at::kFloat)).sum(-1, /*keepdim=*/true);
    const auto sums = p.q.options().dtype(at::kFloat);
    const at::Tensor dq = at::empty(p.q.sizes(), sums), dk = at::zeros(p.q.sizes(), sums),
                     dv = at::zeros(p.q.sizes(), sums);
    for (int64_t begin = 0; begin < p.s.time; begin += kRows) {
      const Tile t(p, begin);
      const at::Tensor seen = t.scores(p).sub_(t.of_rows(logs)).exp_(), go = t.of_rows(dout);
      const at::Tensor half = seen.to(at::kBFloat16);
      t.of_keys(dv).add_(at::bmm(half.transpose(1, 2), go));
      const at::Tensor ds = at::bmm(go, t.of_keys(p.v).transpose(1, 2))
                                .to(at::kFloat)
                                .sub_(t.of_rows(delta))
                                .mul_(seen)
                                .mul_(p.scale())
                                .to(at::kBFloat16);
      t.of_rows(dq).copy_(at::bmm(ds, t.of_keys(p.k)));
      t.of_keys(dk).add_(at::bmm(ds.transpose(1, 2), t.of_rows(p.q)));
    }
    const at::Tensor all = at::empty(p.s.batch * p.s.time * p.s.row(), p.q.options())
                               .view({p.s.batch, p.s.time, 3, p.s.out_row()});
    all.select(2, 0).copy_(p.side_by_side(dq));
    all.select(2, 1).copy_(p.side_by_side(dk));
    all.select(2, 2).copy_(p.side_by_side(dv));
    return {all.view({p.s.batch, p.s.time, p.s.row()}), at::Tensor(), at::Tensor()};
  }
};

double times_a_second(double seconds, bool native) {
  // Drawn by nobody: a run's random numbers stay where they are.
  const at::Tensor qkv = at::arange(256 * 3 * 4 * 64, at::TensorOptions(at::kFloat))
                             .sin()
                             .view({1, 256, 3 * 4 * 64})
                             .to(at::kBFloat16)
                             .set_requires_grad(true);
  const auto once = [&] {
    const at::Tensor out = native ? causal_attention_half(qkv, 4) : causal_attention(qkv, 4);
    out.backward(at::ones(out.sizes(), out.options()));
    qkv.mutable_grad() = at::Tensor();
  };
  at::AutoGradMode grad(true);
  once();  // in which LibTorch may compile its kernels
  const auto begin = Clock::now();
  double best = std::numeric_limits<double>::max();
  do {
    const auto start = Clock::now();
    once();
    best = std::min(best, seconds_since(start));
  } while (seconds_since(begin) < seconds);
  return 1 / best;
}

}  // namespace

at::Tensor causal_attention_half(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts) {
  const AttentionShape s = detail::attention_shape(qkv, heads);
  check<UsageError>(qkv.scalar_type() == at::kBFloat16 && qkv.device().is_cpu(),
                    "causal_attention_half: qkv must be bfloat16 on the CPU");
  if (starts.defined()) detail::check_starts(starts, s, qkv);
  if (qkv.numel() == 0) return causal_attention(qkv, heads, starts);
  c10::optional<at::Tensor> given;
  if (starts.defined()) given = starts;
  return HalfCausalAttention::apply(qkv, heads, given);
}

AttentionRates measure_attention_rates(double seconds) {
  AttentionRates rates;
  rates.widened = times_a_second(seconds, false);
  rates.native = times_a_second(seconds, true);
  // Ones that are added up in bfloat16 come to 256 and stay there.
  const at::Tensor ones = at::ones({2, 512, 512}, at::dtype(at::kBFloat16));
  rates.float32_sums = at::bmm(ones, ones).eq(512).all().item<bool>();
  return rates;
}

HalfAttention faster_attention(const AttentionRates& rates) {
  return rates.ratio() >= 1 && rates.float32_sums ? HalfAttention::native : HalfAttention::widened;
}

std::string describe(const AttentionRates& rates) {
  return fmt::format("bfloat16 attention at {:.{}f} × float32's{}", rates.ratio(),
                     rates.ratio() < 0.1 ? 3 : 1,
                     rates.float32_sums ? "" : ", rounding each partial sum");
}

AttendsHalf::~AttendsHalf() = default;

at::Tensor AttendsHalf::attend(const at::Tensor& qkv, int64_t heads,
                               const at::Tensor& starts) const {
  const bool half = qkv.scalar_type() == at::kBFloat16 && qkv.device().is_cpu();
  if (half && way_ == HalfAttention::native) return causal_attention_half(qkv, heads, starts);
  return causal_attention(qkv, heads, starts);
}

int set_half_attention(torch::nn::Module& root, HalfAttention way) {
  int set = 0;
  for (const auto& m : root.modules(/*include_self=*/false))
    if (auto* attends = dynamic_cast<AttendsHalf*>(m.get())) {
      attends->set_half_attention(way);
      ++set;
    }
  if (auto* attends = dynamic_cast<AttendsHalf*>(&root)) {
    attends->set_half_attention(way);
    ++set;
  }
  return set;
}

}  // namespace trireme
