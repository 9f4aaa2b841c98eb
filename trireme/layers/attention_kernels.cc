// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "trireme/layers/attention_exp_kernels.h"
#include "trireme/layers/gemm.h"

namespace trireme::detail {
namespace {

// Rows of one tile: small enough to leave out most of the invisible half, large enough for BLAS.
constexpr int64_t kTile = 64;
constexpr int64_t kPad = 64;

// Elements from one row of a tile of scores to the next: rows end on whole vectors, wherever they
// begin.
int64_t leading(const AttentionBlock& s) {
  return (s.keys + kPad - 1) / kPad * kPad + (s.starts ? kPad : 0);
}

// Queries that are before every key: they see nothing.
int64_t blind(const AttentionBlock& s) {
  return std::clamp<int64_t>(s.keys_at - s.queries_at, 0, s.queries);
}

// Queries begin … begin + rows, and the keys low … low + columns, which hold what they see.
struct Tile {
  Tile(const AttentionBlock& s, const int64_t* starts, int64_t from)
      : begin(from),
        rows(std::min(kTile, s.queries - from)),
        first_visible(s.queries_at + from + 1 - s.keys_at),
        starts_(starts),
        keys_at_(s.keys_at) {
    const int64_t high = std::min(first_visible + rows - 1, s.keys);
    if (starts)
      low = std::clamp<int64_t>(*std::min_element(starts + begin, starts + begin + rows) - keys_at_,
                                0, high);
    columns = high - low;
    first_visible -= low;
  }
  // Columns before the document of row r.
  int64_t hidden(int64_t r) const {
    return std::clamp<int64_t>(starts_[begin + r] - keys_at_ - low, 0, columns);
  }
  // Of row r, from the first column on.
  int64_t visible(int64_t r) const { return std::min(first_visible + r, columns); }

  int64_t begin, rows, low = 0, columns = 0, first_visible;

 private:
  const int64_t* starts_;
  int64_t keys_at_;
};

template <class T>
void tile_exp(const AttentionBlock& s, const Tile& t, T* scores, int64_t ld, T* sums, T* logs) {
  if (!s.starts) return causal_exp<T>(scores, t.rows, t.columns, ld, t.first_visible, sums, logs);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t h = t.hidden(r);
    T* row = scores + r * ld;
    if (t.visible(r) > h) {
      causal_exp<T>(row + h, 1, t.columns - h, ld, t.visible(r) - h, sums + r, logs + r);
      std::fill(row, row + h, T(0));
    } else {
      std::fill(row, row + t.columns, T(0));
      sums[r] = 1;
      logs[r] = -std::numeric_limits<T>::infinity();
    }
  }
}

template <class T>
void tile_exp_backward(const AttentionBlock& s, const Tile& t, T* scores, T* dp, int64_t ld,
                       const T* logs, const T* delta) {
  if (!s.starts)
    return causal_exp_backward<T>(scores, dp, t.rows, t.columns, ld, t.first_visible, logs, delta);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t h = t.visible(r) > t.hidden(r) ? t.hidden(r) : t.columns;
    T *row = scores + r * ld, *drow = dp + r * ld;
    if (h < t.columns)
      causal_exp_backward<T>(row + h, drow + h, 1, t.columns - h, ld, t.visible(r) - h, logs + r,
                             delta + r);
    std::fill(row, row + h, T(0));
    std::fill(drow, drow + h, T(0));
  }
}

// One query head and the key/value head that it reads.
template <class T>
struct Head {
  const T *q, *k, *v;
  int64_t q_row, k_row, v_row;  // elements between places
};

template <class T>
struct Scratch {
  Scratch(const AttentionBlock& s, bool backward)
      : ld(leading(s)),
        scores(static_cast<size_t>(kTile * ld)),
        dp(backward ? scores.size() : static_cast<size_t>(kTile * s.width)),
        sums(kTile),
        logs(kTile) {}
  int64_t ld;
  std::vector<T> scores, dp, sums, logs;
};

// o = o · exp(old - both) + part · exp(log - both) / sum for each row, and old becomes both, the
// logarithm of both sums.
template <class T>
void merge(const Tile& t, int64_t width, const T* part, const T* sums, const T* logs, T* o,
           int64_t o_row, T* old) {
  for (int64_t r = 0; r < t.rows; ++r) {
    if (logs[r] == -std::numeric_limits<T>::infinity()) continue;
    const T most = old[r] > logs[r] ? old[r] : logs[r];  // a NaN of either comes through
    const T both = most + std::log(std::exp(old[r] - most) + std::exp(logs[r] - most));
    const T keep = std::exp(old[r] - both), take = std::exp(logs[r] - both) / sums[r];
    for (int64_t i = 0; i < width; ++i)
      o[r * o_row + i] = o[r * o_row + i] * keep + part[r * width + i] * take;
    old[r] = both;
  }
}

template <class T>
void see_nothing(int64_t begin, int64_t rows, int64_t width, T* out, int64_t out_row, T* logs) {
  for (int64_t r = begin; r < begin + rows; ++r) {
    std::fill_n(out + r * out_row, width, T(0));
    logs[r] = -std::numeric_limits<T>::infinity();
  }
}

template <class T>
void forward_head(const AttentionBlock& s, const int64_t* starts, const Head<T>& h, T* out,
                  int64_t out_row, T* logs, bool first, Scratch<T>& on) {
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
  if (first) see_nothing(0, blind(s), s.width, out, out_row, logs);
  for (int64_t begin = blind(s); begin < s.queries; begin += kTile) {
    const Tile t(s, starts, begin);
    T* o = out + begin * out_row;
    if (t.columns == 0) {
      if (first) see_nothing(begin, t.rows, s.width, out, out_row, logs);
      continue;
    }
    T *sums = on.sums.data(), *log = first ? logs + begin : on.logs.data(),
      *scores = on.scores.data();
    gemm<T>(false, true, t.rows, t.columns, s.width, scale, h.q + begin * h.q_row, h.q_row,
            h.k + t.low * h.k_row, h.k_row, T(0), scores, on.ld);
    tile_exp<T>(s, t, scores, on.ld, sums, log);
    T* to = first ? o : on.dp.data();
    const int64_t to_row = first ? out_row : s.width;
    gemm<T>(false, false, t.rows, s.width, t.columns, T(1), scores, on.ld, h.v + t.low * h.v_row,
            h.v_row, T(0), to, to_row);
    if (!first) {
      merge<T>(t, s.width, to, sums, log, o, out_row, logs + begin);
      continue;
    }
    for (int64_t r = 0; r < t.rows; ++r) {
      const T inverse = 1 / sums[r];
      for (int64_t i = 0; i < s.width; ++i) o[r * out_row + i] *= inverse;
    }
  }
}

// The gradients of a head.
template <class T>
struct HeadGradients {
  T *dq, *dk, *dv;
  int64_t dq_row, dk_row, dv_row;
  bool adds_dq, adds_dkv;
};

template <class T>
void clear(T* t, int64_t row, int64_t begin, int64_t rows, int64_t width) {
  for (int64_t i = begin; i < begin + rows; ++i) std::fill_n(t + i * row, width, T(0));
}

template <class T>
void backward_head(const AttentionBlock& s, const int64_t* starts, const Head<T>& h, const T* out,
                   int64_t out_row, const T* dout, int64_t dout_row, const T* logs,
                   const HeadGradients<T>& d, Scratch<T>& on) {
  const T scale = static_cast<T>(1 / std::sqrt(static_cast<double>(s.width)));
  const int64_t hidden = blind(s);
  // From the last tile: if it sees every key, it can write dk and dv where the others add. Of
  // documents it sees those of its own.
  const bool sees_all = !starts && s.queries_at + s.queries >= s.keys_at + s.keys;
  bool fresh = !d.adds_dkv && sees_all;
  if (!d.adds_dkv && !sees_all) {
    clear(d.dk, d.dk_row, 0, s.keys, s.width);
    clear(d.dv, d.dv_row, 0, s.keys, s.width);
  }
  if (!d.adds_dq) clear(d.dq, d.dq_row, 0, hidden, s.width);
  T *scores = on.scores.data(), *dp = on.dp.data(), *delta = on.sums.data();
  for (int64_t begin = hidden + (s.queries - hidden - 1) / kTile * kTile;
       begin >= hidden && begin < s.queries; begin -= kTile) {
    const Tile t(s, starts, begin);
    const int64_t rows = t.rows, seen = t.columns;
    if (seen == 0) {
      if (!d.adds_dq) clear(d.dq, d.dq_row, begin, rows, s.width);
      continue;
    }
    const T *q = h.q + begin * h.q_row, *k = h.k + t.low * h.k_row, *v = h.v + t.low * h.v_row,
            *go = dout + begin * dout_row, *o = out + begin * out_row;
    T *dk = d.dk + t.low * d.dk_row, *dv = d.dv + t.low * d.dv_row;
    for (int64_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (int64_t i = 0; i < s.width; ++i) sum += go[r * dout_row + i] * o[r * out_row + i];
      delta[r] = sum;
    }
    const T beta = fresh ? T(0) : T(1);
    fresh = false;
    gemm<T>(false, true, rows, seen, s.width, scale, q, h.q_row, k, h.k_row, T(0), scores, on.ld);
    gemm<T>(false, true, rows, seen, s.width, T(1), go, dout_row, v, h.v_row, T(0), dp, on.ld);
    tile_exp_backward<T>(s, t, scores, dp, on.ld, logs + begin, delta);
    gemm<T>(true, false, seen, s.width, rows, T(1), scores, on.ld, go, dout_row, beta, dv,
            d.dv_row);
    gemm<T>(false, false, rows, s.width, seen, scale, dp, on.ld, k, h.k_row,
            d.adds_dq ? T(1) : T(0), d.dq + begin * d.dq_row, d.dq_row);
    gemm<T>(true, false, seen, s.width, rows, scale, dp, on.ld, q, h.q_row, beta, dk, d.dk_row);
  }
}

// Calls f(starts of the row, place of the head in a tensor of queries, in one of keys, of logs,
// whether it is the first that reads its keys).
template <class F>
void each_head(const AttentionBlock& s, F f) {
  const int64_t each = s.heads / s.kv_heads;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      f(b, h, h / each, s.starts ? s.starts + b * s.starts_row : nullptr, h % each == 0);
}

template <class T>
T* at_head(const HeadRows<T>& t, int64_t b, int64_t h, int64_t width) {
  return t.data + b * t.batch + h * width;
}

}  // namespace

template <class T>
void attention_forward(const AttentionBlock& s, HeadRows<const T> q, HeadRows<const T> k,
                       HeadRows<const T> v, HeadRows<T> out, LogSums<T> logs, bool first) {
  if (s.queries == 0 || s.width == 0) return;
  Scratch<T> on(s, false);
  each_head(s, [&](int64_t b, int64_t h, int64_t kv, const int64_t* starts, bool) {
    const Head<T> head{at_head(q, b, h, s.width),
                       at_head(k, b, kv, s.width),
                       at_head(v, b, kv, s.width),
                       q.row,
                       k.row,
                       v.row};
    forward_head<T>(s, starts, head, at_head(out, b, h, s.width), out.row,
                    logs.data + (b * s.heads + h) * logs.head, first, on);
  });
}

template <class T>
void attention_backward(const AttentionBlock& s, HeadRows<const T> q, HeadRows<const T> k,
                        HeadRows<const T> v, HeadRows<const T> out, HeadRows<const T> dout,
                        LogSums<const T> logs, const AttentionGradients<T>& d) {
  if (s.width == 0) return;
  Scratch<T> on(s, true);
  each_head(s, [&](int64_t b, int64_t h, int64_t kv, const int64_t* starts, bool first) {
    const Head<T> head{at_head(q, b, h, s.width),
                       at_head(k, b, kv, s.width),
                       at_head(v, b, kv, s.width),
                       q.row,
                       k.row,
                       v.row};
    const HeadGradients<T> to{at_head(d.dq, b, h, s.width),
                              at_head(d.dk, b, kv, s.width),
                              at_head(d.dv, b, kv, s.width),
                              d.dq.row,
                              d.dk.row,
                              d.dv.row,
                              d.adds_dq,
                              d.adds_dkv || !first};
    backward_head<T>(s, starts, head, at_head(out, b, h, s.width), out.row,
                     at_head(dout, b, h, s.width), dout.row,
                     logs.data + (b * s.heads + h) * logs.head, to, on);
  });
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void attention_forward(const AttentionBlock&, HeadRows<const T>, HeadRows<const T>,  \
                                  HeadRows<const T>, HeadRows<T>, LogSums<T>, bool);            \
  template void attention_backward(const AttentionBlock&, HeadRows<const T>, HeadRows<const T>, \
                                   HeadRows<const T>, HeadRows<const T>, HeadRows<const T>,     \
                                   LogSums<const T>, const AttentionGradients<T>&)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::detail
