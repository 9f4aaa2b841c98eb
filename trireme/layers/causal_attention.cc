// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/causal_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/layers/gemm.h"
#include "trireme/layers/kernels.h"
#include "trireme/tensor/attention_compat.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

// Rows of one tile: small enough to leave out most of the invisible half, large enough for BLAS.
constexpr int64_t kTile = 64;
constexpr int64_t kPad = 64;  // rows of scores end on whole vectors

struct Shape {
  int64_t batch, time, heads, width;
  int64_t row() const {
    return 3 * heads * width;
  }  // elements from one position to the next in qkv
  int64_t out_row() const { return heads * width; }
  int64_t ld() const { return (time + kPad - 1) / kPad * kPad; }
};

Shape shape_of(const at::Tensor& qkv, int64_t heads) {
  check<UsageError>(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
                    "causal_attention: qkv must be [batch, time, 3 × {} heads × width], and has {} "
                    "dims, the last {}",
                    heads, qkv.dim(), qkv.dim() ? qkv.size(-1) : 0);
  return {qkv.size(0), qkv.size(1), heads, qkv.size(2) / (3 * heads)};
}

template <class T>
void forward_head(const Shape& s, const T* q, T* out, T* scores, T* sums, T* logs) {
  const T *k = q + s.out_row(), *v = k + s.out_row();
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
  for (int64_t begin = 0; begin < s.time; begin += kTile) {
    const int64_t rows = std::min(kTile, s.time - begin), seen = begin + rows;
    T* o = out + begin * s.out_row();
    detail::gemm<T>(false, true, rows, seen, s.width, scale, q + begin * s.row(), s.row(), k,
                    s.row(), T(0), scores, s.ld());
    detail::causal_exp<T>(scores, rows, seen, s.ld(), begin + 1, sums, logs + begin);
    detail::gemm<T>(false, false, rows, s.width, seen, T(1), scores, s.ld(), v, s.row(), T(0), o,
                    s.out_row());
    for (int64_t r = 0; r < rows; ++r) {
      const T inverse = 1 / sums[r];
      for (int64_t i = 0; i < s.width; ++i) o[r * s.out_row() + i] *= inverse;
    }
  }
}

template <class T>
void backward_head(const Shape& s, const T* q, const T* out, const T* dout, const T* logs, T* dq,
                   T* scores, T* dp, T* delta) {
  const T *k = q + s.out_row(), *v = k + s.out_row();
  T *dk = dq + s.out_row(), *dv = dk + s.out_row();
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
  // From the last tile: it sees every key, so it can write dk and dv where the others add.
  for (int64_t begin = (s.time - 1) / kTile * kTile; begin >= 0; begin -= kTile) {
    const int64_t rows = std::min(kTile, s.time - begin), seen = begin + rows;
    const T beta = seen == s.time ? T(0) : T(1);
    const T *qt = q + begin * s.row(), *go = dout + begin * s.out_row(),
            *o = out + begin * s.out_row();
    for (int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (int64_t i = 0; i < s.width; ++i) sum += go[r * s.out_row() + i] * o[r * s.out_row() + i];
      delta[r] = sum;
    }
    detail::gemm<T>(false, true, rows, seen, s.width, scale, qt, s.row(), k, s.row(), T(0), scores,
                    s.ld());
    detail::gemm<T>(false, true, rows, seen, s.width, T(1), go, s.out_row(), v, s.row(), T(0), dp,
                    s.ld());
    detail::causal_exp_backward<T>(scores, dp, rows, seen, s.ld(), begin + 1, logs + begin, delta);
    detail::gemm<T>(true, false, seen, s.width, rows, T(1), scores, s.ld(), go, s.out_row(), beta,
                    dv, s.row());
    detail::gemm<T>(false, false, rows, s.width, seen, scale, dp, s.ld(), k, s.row(), T(0),
                    dq + begin * s.row(), s.row());
    detail::gemm<T>(true, false, seen, s.width, rows, scale, dp, s.ld(), qt, s.row(), beta, dk,
                    s.row());
  }
}

template <class F>
void each_head(const Shape& s, F f) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      f(b * s.time * s.row() + h * s.width, b * s.time * s.out_row() + h * s.width,
        (b * s.heads + h) * s.time);
}

// bfloat16 is stored and computed in float32: what is kept for backward stays small.
at::Tensor computed(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16 ? t.to(at::kFloat) : t;
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& input,
                            int64_t heads) {
    const auto s = shape_of(input, heads);
    const at::Tensor kept = input.contiguous();
    auto qkv = computed(kept);
    auto out = at::empty({s.batch, s.time, s.out_row()}, qkv.options());
    auto logs = at::empty({s.batch, s.heads, s.time}, qkv.options());
    auto run = [&](auto* q, auto* o, auto* log) {
      using T = std::remove_pointer_t<decltype(q)>;
      std::vector<T> scores(static_cast<size_t>(kTile * s.ld())), sums(kTile);
      each_head(s, [&](int64_t in, int64_t to, int64_t row) {
        forward_head<T>(s, q + in, o + to, scores.data(), sums.data(), log + row);
      });
    };
    if (qkv.scalar_type() == at::kFloat)
      run(host_data<float>(qkv), host_data<float>(out), host_data<float>(logs));
    else
      run(host_data<double>(qkv), host_data<double>(out), host_data<double>(logs));
    out = out.to(kept.scalar_type());
    ctx->save_for_backward({kept, out, logs});
    ctx->saved_data["heads"] = heads;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto saved = ctx->get_saved_variables();
    const auto s = shape_of(saved[0], ctx->saved_data["heads"].toInt());
    const auto type = saved[0].scalar_type();
    const at::Tensor qkv = computed(saved[0]), out = computed(saved[1]), &logs = saved[2];
    auto dout = computed(grads[0].contiguous());
    auto dqkv = at::empty(qkv.sizes(), qkv.options());
    auto run = [&](auto* q, auto* o, auto* g, auto* log, auto* dq) {
      using T = std::remove_pointer_t<decltype(q)>;
      std::vector<T> scores(static_cast<size_t>(kTile * s.ld())), dp(scores.size()), delta(kTile);
      each_head(s, [&](int64_t in, int64_t to, int64_t row) {
        backward_head<T>(s, q + in, o + to, g + to, log + row, dq + in, scores.data(), dp.data(),
                         delta.data());
      });
    };
    if (dqkv.scalar_type() == at::kFloat)
      run(host_data<float>(qkv), host_data<float>(out), host_data<float>(dout),
          host_data<float>(logs), host_data<float>(dqkv));
    else
      run(host_data<double>(qkv), host_data<double>(out), host_data<double>(dout),
          host_data<double>(logs), host_data<double>(dqkv));
    return {dqkv.to(type), at::Tensor()};
  }
};

/// Queries, keys and values as [batch, heads, time, width], where they lie.
struct Heads {
  Heads(const at::Tensor& qkv, const Shape& s)
      : parts(qkv.view({s.batch, s.time, 3, s.heads, s.width}).permute({2, 0, 3, 1, 4})),
        q(parts.select(0, 0)),
        k(parts.select(0, 1)),
        v(parts.select(0, 2)) {}
  at::Tensor parts, q, k, v;
};

at::Tensor side_by_side(const at::Tensor& out, const Shape& s) {
  return out.transpose(1, 2).reshape({s.batch, s.time, s.out_row()});
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, int64_t heads) {
  const bool ours = qkv.device().is_cpu() &&
                    (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kDouble ||
                     qkv.scalar_type() == at::kBFloat16);
  if (qkv.numel() == 0) return plain_causal_attention(qkv, heads);
  if (ours) return CausalAttention::apply(qkv, heads);
  if (is_asynchronous(qkv.device())) {
    const Shape s = shape_of(qkv, heads);
    const Heads h(qkv, s);
    if (const auto out = compat::fused_causal_attention(h.q, h.k, h.v))
      return side_by_side(*out, s);
  }
  return plain_causal_attention(qkv, heads);
}

at::Tensor plain_causal_attention(const at::Tensor& qkv, int64_t heads) {
  const auto s = shape_of(qkv, heads);
  const Heads h(qkv, s);
  auto scores =
      at::matmul(h.q, h.k.transpose(-2, -1)).mul(1 / std::sqrt(static_cast<double>(s.width)));
  auto hidden = at::ones({s.time, s.time}, qkv.options().dtype(at::kBool)).triu(1);
  auto p = at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return side_by_side(at::matmul(p, h.v), s);
}

}  // namespace trireme
