// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/causal_attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/layers/gemm.h"

// Three targets are enough, and each costs its compile time again.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/layers/causal_attention_kernels.cc"
// The order matters.
// clang-format off
#include <hwy/foreach_target.h>  // includes this file again, once a target
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::attention_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// hn::Exp gives 0 for a NaN, which would hide it.
HWY_INLINE VF exp_or_nan(DF d, VF x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

// Columns past the visible ones, up to a whole vector, become 0; what a vector load would add there
// is discarded by the first `visible` mask.
void causal_exp(float* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible,
                float* sums, float* logs) {
  const DF d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * ld;
    const int64_t visible = std::min(first_visible + r, columns), whole = visible / n * n;
    const auto part = hn::FirstN(d, static_cast<size_t>(visible - whole));
    auto most = lowest;
    for (int64_t i = 0; i < whole; i += n) most = hn::Max(most, hn::LoadU(d, row + i));
    if (whole < visible)
      most = hn::Max(most, hn::IfThenElse(part, hn::LoadU(d, row + whole), lowest));
    const auto shift = hn::MaxOfLanes(d, most);
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < whole; i += n) {
      const auto e = exp_or_nan(d, hn::Sub(hn::LoadU(d, row + i), shift));
      hn::StoreU(e, d, row + i);
      sum = hn::Add(sum, e);
    }
    int64_t done = whole;
    if (whole < visible) {
      const auto e =
          hn::IfThenElseZero(part, exp_or_nan(d, hn::Sub(hn::LoadU(d, row + whole), shift)));
      hn::StoreU(e, d, row + whole);
      sum = hn::Add(sum, e);
      done += n;
    }
    std::fill(row + std::min(done, columns), row + columns, 0.0f);
    sums[r] = hn::GetLane(hn::SumOfLanes(d, sum));
    logs[r] = hn::GetLane(shift) + std::log(sums[r]);
  }
}

void causal_exp_backward(float* s, float* dp, int64_t rows, int64_t columns, int64_t ld,
                         int64_t first_visible, const float* logs, const float* delta) {
  const DF d;
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * ld;
    float* drow = dp + r * ld;
    const int64_t visible = std::min(first_visible + r, columns), whole = visible / n * n;
    const auto log = hn::Set(d, logs[r]), shift = hn::Set(d, delta[r]);
    auto one = [&](int64_t i) { return exp_or_nan(d, hn::Sub(hn::LoadU(d, row + i), log)); };
    for (int64_t i = 0; i < whole; i += n) {
      const auto p = one(i);
      hn::StoreU(p, d, row + i);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, drow + i), shift)), d, drow + i);
    }
    int64_t done = whole;
    if (whole < visible) {
      const auto part = hn::FirstN(d, static_cast<size_t>(visible - whole));
      const auto p = hn::IfThenElseZero(part, one(whole));
      hn::StoreU(p, d, row + whole);
      const auto ds = hn::Mul(p, hn::Sub(hn::LoadU(d, drow + whole), shift));
      hn::StoreU(hn::IfThenElseZero(part, ds), d, drow + whole);
      done += n;
    }
    std::fill(row + std::min(done, columns), row + columns, 0.0f);
    std::fill(drow + std::min(done, columns), drow + columns, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::attention_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::attention_kernels {
HWY_EXPORT(causal_exp);
HWY_EXPORT(causal_exp_backward);
}  // namespace trireme::attention_kernels

namespace trireme::detail {

using namespace attention_kernels;  // NOLINT: the dispatch tables

template <>
void causal_exp<float>(float* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible,
                       float* sums, float* logs) {
  HWY_DYNAMIC_DISPATCH(causal_exp)(s, rows, columns, ld, first_visible, sums, logs);
}
template <>
void causal_exp_backward<float>(float* s, float* dp, int64_t rows, int64_t columns, int64_t ld,
                                int64_t first_visible, const float* logs, const float* delta) {
  HWY_DYNAMIC_DISPATCH(causal_exp_backward)(s, dp, rows, columns, ld, first_visible, logs, delta);
}
template <>
void causal_exp<double>(double* s, int64_t rows, int64_t columns, int64_t ld, int64_t first_visible,
                        double* sums, double* logs) {
  for (int64_t r = 0; r < rows; ++r) {
    double* row = s + r * ld;
    const int64_t visible = std::min(first_visible + r, columns);
    const double most = *std::max_element(row, row + visible);
    sums[r] = 0;
    for (int64_t i = 0; i < visible; ++i) sums[r] += row[i] = std::exp(row[i] - most);
    std::fill(row + visible, row + columns, 0.0);
    logs[r] = most + std::log(sums[r]);
  }
}
template <>
void causal_exp_backward<double>(double* s, double* dp, int64_t rows, int64_t columns, int64_t ld,
                                 int64_t first_visible, const double* logs, const double* delta) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      auto &p = s[r * ld + i], &g = dp[r * ld + i];
      p = i < first_visible + r ? std::exp(p - logs[r]) : 0;
      g = i < first_visible + r ? p * (g - delta[r]) : 0;
    }
}

namespace {

// Rows of one tile: small enough to leave out most of the invisible half, large enough for BLAS.
constexpr int64_t kTile = 64;

// The columns of a tile of scores: keys low … low + columns, of which row r sees those from
// hidden(r) on.
struct Tile {
  Tile(const AttentionShape& s, const int64_t* starts, int64_t from)
      : begin(from), rows(std::min(kTile, s.time - from)), starts_(starts) {
    if (starts) low = *std::min_element(starts + begin, starts + begin + rows);
    columns = begin + rows - low;
  }
  int64_t hidden(int64_t r) const { return starts_[begin + r] - low; }

  int64_t begin, rows, low = 0, columns;

 private:
  const int64_t* starts_;
};

template <class T>
void tile_exp(const AttentionShape& s, const Tile& t, T* scores, T* sums, T* logs) {
  const int64_t ld = s.ld(), visible = t.begin + 1 - t.low;
  if (!s.starts) return causal_exp<T>(scores, t.rows, t.columns, ld, visible, sums, logs);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t h = t.hidden(r);
    T* row = scores + r * ld;
    causal_exp<T>(row + h, 1, t.columns - h, ld, visible + r - h, sums + r, logs + r);
    std::fill(row, row + h, T(0));
  }
}

template <class T>
void tile_exp_backward(const AttentionShape& s, const Tile& t, T* scores, T* dp, const T* logs,
                       const T* delta) {
  const int64_t ld = s.ld(), visible = t.begin + 1 - t.low;
  if (!s.starts)
    return causal_exp_backward<T>(scores, dp, t.rows, t.columns, ld, visible, logs, delta);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t h = t.hidden(r);
    T *row = scores + r * ld, *drow = dp + r * ld;
    causal_exp_backward<T>(row + h, drow + h, 1, t.columns - h, ld, visible + r - h, logs + r,
                           delta + r);
    std::fill(row, row + h, T(0));
    std::fill(drow, drow + h, T(0));
  }
}

template <class T>
void forward_head(const AttentionShape& s, const int64_t* starts, const T* q, T* out, T* scores,
                  T* sums, T* logs) {
  const T *k = q + s.out_row(), *v = k + s.out_row();
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
  for (int64_t begin = 0; begin < s.time; begin += kTile) {
    const Tile t(s, starts, begin);
    const int64_t rows = t.rows, from = t.low * s.row();
    T* o = out + begin * s.out_row();
    gemm<T>(false, true, rows, t.columns, s.width, scale, q + begin * s.row(), s.row(), k + from,
            s.row(), T(0), scores, s.ld());
    tile_exp<T>(s, t, scores, sums, logs + begin);
    gemm<T>(false, false, rows, s.width, t.columns, T(1), scores, s.ld(), v + from, s.row(), T(0),
            o, s.out_row());
    for (int64_t r = 0; r < rows; ++r) {
      const T inverse = 1 / sums[r];
      for (int64_t i = 0; i < s.width; ++i) o[r * s.out_row() + i] *= inverse;
    }
  }
}

template <class T>
void backward_head(const AttentionShape& s, const int64_t* starts, const T* q, const T* out,
                   const T* dout, const T* logs, T* dq, T* scores, T* dp, T* delta) {
  const T *k = q + s.out_row(), *v = k + s.out_row();
  T *dk = dq + s.out_row(), *dv = dk + s.out_row();
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
  // From the last tile: it sees every key, so it can write dk and dv where the others add. Of
  // documents it sees those of its own.
  if (starts)
    for (int64_t i = 0; i < s.time; ++i) {
      std::fill_n(dk + i * s.row(), s.width, T(0));
      std::fill_n(dv + i * s.row(), s.width, T(0));
    }
  for (int64_t begin = (s.time - 1) / kTile * kTile; begin >= 0; begin -= kTile) {
    const Tile t(s, starts, begin);
    const int64_t rows = t.rows, seen = t.columns, from = t.low * s.row();
    const T beta = !starts && begin + rows == s.time ? T(0) : T(1);
    const T *qt = q + begin * s.row(), *go = dout + begin * s.out_row(),
            *o = out + begin * s.out_row();
    for (int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (int64_t i = 0; i < s.width; ++i) sum += go[r * s.out_row() + i] * o[r * s.out_row() + i];
      delta[r] = sum;
    }
    gemm<T>(false, true, rows, seen, s.width, scale, qt, s.row(), k + from, s.row(), T(0), scores,
            s.ld());
    gemm<T>(false, true, rows, seen, s.width, T(1), go, s.out_row(), v + from, s.row(), T(0), dp,
            s.ld());
    tile_exp_backward<T>(s, t, scores, dp, logs + begin, delta);
    gemm<T>(true, false, seen, s.width, rows, T(1), scores, s.ld(), go, s.out_row(), beta,
            dv + from, s.row());
    gemm<T>(false, false, rows, s.width, seen, scale, dp, s.ld(), k + from, s.row(), T(0),
            dq + begin * s.row(), s.row());
    gemm<T>(true, false, seen, s.width, rows, scale, dp, s.ld(), qt, s.row(), beta, dk + from,
            s.row());
  }
}

template <class F>
void each_head(const AttentionShape& s, F f) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      f(s.starts ? s.starts + b * s.time : nullptr, b * s.time * s.row() + h * s.width,
        b * s.time * s.out_row() + h * s.width, (b * s.heads + h) * s.time);
}

}  // namespace

template <class T>
void causal_attention_forward(const AttentionShape& s, const T* qkv, T* out, T* logs) {
  std::vector<T> scores(static_cast<size_t>(kTile * s.ld())), sums(kTile);
  each_head(s, [&](const int64_t* starts, int64_t in, int64_t to, int64_t row) {
    forward_head<T>(s, starts, qkv + in, out + to, scores.data(), sums.data(), logs + row);
  });
}

template <class T>
void causal_attention_backward(const AttentionShape& s, const T* qkv, const T* out, const T* dout,
                               const T* logs, T* dqkv) {
  std::vector<T> scores(static_cast<size_t>(kTile * s.ld())), dp(scores.size()), delta(kTile);
  each_head(s, [&](const int64_t* starts, int64_t in, int64_t to, int64_t row) {
    backward_head<T>(s, starts, qkv + in, out + to, dout + to, logs + row, dqkv + in, scores.data(),
                     dp.data(), delta.data());
  });
}

template void causal_attention_forward(const AttentionShape&, const float*, float*, float*);
template void causal_attention_forward(const AttentionShape&, const double*, double*, double*);
template void causal_attention_backward(const AttentionShape&, const float*, const float*,
                                        const float*, const float*, float*);
template void causal_attention_backward(const AttentionShape&, const double*, const double*,
                                        const double*, const double*, double*);

}  // namespace trireme::detail
#endif
