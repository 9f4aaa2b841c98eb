// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/codec_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/grad/compression/codec_kernels.cc"
// clang-format off
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::codec_kernels_targets {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int64_t kBlock = 8192;  // of a sum in float32

inline int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }

// The largest bits of a magnitude: a NaN's are above an infinity's, whatever the order.
struct Most {
  using I = hn::RebindToSigned<D>;
  hn::Vec<I> v;
  int32_t tail = 0;
  Most() { v = hn::Zero(I()); }  // written out: a made-up one is for no target
  void look(V x) { v = hn::Max(v, hn::BitCast(I(), hn::Abs(x))); }
  void look(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, 4);
    tail = std::max(tail, bits & 0x7fffffff);
  }
  float value() const {
    const int32_t most = std::max(tail, hn::GetLane(hn::MaxOfLanes(I(), v)));
    float f;
    std::memcpy(&f, &most, 4);
    return f;
  }
};

void AddKept(float* x, const float* kept, int64_t n, float* most_sum, float* most_kept) {
  const D d;
  Most sum, old;
  int64_t i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    const V k = hn::LoadU(d, kept + i), s = hn::Add(hn::LoadU(d, x + i), k);
    hn::StoreU(s, d, x + i);
    sum.look(s);
    old.look(k);
  }
  for (; i < n; ++i) {
    old.look(kept[i]);
    sum.look(x[i] += kept[i]);
  }
  *most_sum = sum.value();
  *most_kept = old.value();
}

float LargestOf(const float* x, int64_t n) {
  const D d;
  Most a, b;
  int64_t i = 0;
  for (; i + 2 * lanes() <= n; i += 2 * lanes()) {
    a.look(hn::LoadU(d, x + i));
    b.look(hn::LoadU(d, x + i + lanes()));
  }
  for (; i < n; ++i) a.look(x[i]);
  a.v = hn::Max(a.v, b.v);
  return a.value();
}

template <class F, class G>
double SumOf(const float* x, int64_t n, F of, G of_one) {
  const D d;
  double total = 0;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t to = std::min(n, from + kBlock);
    V a = hn::Zero(d), b = hn::Zero(d);
    int64_t i = from;
    for (; i + 2 * lanes() <= to; i += 2 * lanes()) {
      a = hn::Add(a, of(hn::LoadU(d, x + i)));
      b = hn::Add(b, of(hn::LoadU(d, x + i + lanes())));
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))));
    for (; i < to; ++i) total += static_cast<double>(of_one(x[i]));
  }
  return total;
}

double Energy(const float* x, int64_t n) {
  return SumOf(
      x, n, [](V v) HWY_ATTR { return hn::Mul(v, v); }, [](float f) { return f * f; });
}
double Magnitude(const float* x, int64_t n) {
  return SumOf(
      x, n, [](V v) HWY_ATTR { return hn::Abs(v); }, [](float f) { return std::fabs(f); });
}

void Quantize(const float* x, int64_t n, int64_t block, float* scales, int8_t* q) {
  const D d;
  const hn::Rebind<int8_t, D> d8;
  for (int64_t from = 0; from < n; from += block) {
    const int64_t to = std::min(n, from + block);
    const float most = LargestOf(x + from, to - from);
    // So small that its inverse is none: nothing is sent.
    const bool none = !(most > 1e-36f);
    const float inverse = none ? 0 : 127 / most;
    *scales++ = none ? 0 : most / 127;
    const V times = hn::Set(d, inverse);
    int64_t i = from;
    for (; i + lanes() <= to; i += lanes())
      hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), times))), d8, q + i);
    for (; i < to; ++i) q[i] = static_cast<int8_t>(std::lrintf(x[i] * inverse));
  }
}

// f(vector or float of q × scale, where) over [begin, end).
template <class F>
void ForDequantized(const int8_t* q, const float* scales, int64_t block, int64_t begin, int64_t end,
                    float factor, F f) {
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int8_t, D> d8;
  for (int64_t i = begin; i < end;) {
    const int64_t to = std::min(end, (i / block + 1) * block);
    const float scale = scales[i / block] * factor;
    const V times = hn::Set(d, scale);
    for (; i + lanes() <= to; i += lanes())
      f(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, q + i))), times), i - begin);
    for (; i < to; ++i) f(static_cast<float>(q[i]) * scale, i - begin);
  }
}

struct Assign {
  float* to;
  void operator()(V v, int64_t i) const { hn::StoreU(v, D(), to + i); }
  void operator()(float v, int64_t i) const { to[i] = v; }
};
struct Add {
  float* to;
  void operator()(V v, int64_t i) const {
    hn::StoreU(hn::Add(hn::LoadU(D(), to + i), v), D(), to + i);
  }
  void operator()(float v, int64_t i) const { to[i] += v; }
};
struct SubtractFrom {
  const float* from;
  float* to;
  void operator()(V v, int64_t i) const {
    hn::StoreU(hn::Sub(hn::LoadU(D(), from + i), v), D(), to + i);
  }
  void operator()(float v, int64_t i) const { to[i] = from[i] - v; }
};

void Dequantize(const int8_t* q, const float* s, int64_t block, int64_t begin, int64_t end,
                float factor, float* to) {
  ForDequantized(q, s, block, begin, end, factor, Assign{to});
}
void DequantizeAdd(const int8_t* q, const float* s, int64_t block, int64_t begin, int64_t end,
                   float* to) {
  ForDequantized(q, s, block, begin, end, 1, Add{to});
}
void DequantizeSubtract(const int8_t* q, const float* s, int64_t block, int64_t begin, int64_t end,
                        const float* from, float* to) {
  ForDequantized(q, s, block, begin, end, 1, SubtractFrom{from, to});
}

void PackSigns(const float* x, int64_t n, uint8_t* bits) {
  const D d;
  int64_t i = 0;
  if (lanes() >= 8)
    for (; i + lanes() <= n; i += lanes())
      hn::StoreMaskBits(d, hn::Lt(hn::LoadU(d, x + i), hn::Zero(d)), bits + i / 8);
  for (; i < n; i += 8) {
    uint32_t byte = 0;
    for (int64_t k = 0; k < std::min<int64_t>(8, n - i); ++k)
      byte |= static_cast<uint32_t>(x[i + k] < 0) << k;
    bits[i / 8] = static_cast<uint8_t>(byte);
  }
}

void AddSigns(const uint8_t* bits, int64_t n, float scale, float* to) {
  const D d;
  const V plus = hn::Set(d, scale), minus = hn::Set(d, -scale);
  int64_t i = 0;
  if (lanes() >= 8)
    for (; i + lanes() <= n; i += lanes()) {
      const V v = hn::IfThenElse(hn::LoadMaskBits(d, bits + i / 8), minus, plus);
      hn::StoreU(hn::Add(hn::LoadU(d, to + i), v), d, to + i);
    }
  for (; i < n; ++i) to[i] += bits[i / 8] >> (i % 8) & 1 ? -scale : scale;
}

int64_t Collect(const float* x, int64_t n, float least, int32_t* indices, int64_t room) {
  const D d;
  const V bound = hn::Set(d, least);
  int64_t found = 0, i = 0;
  // Two vectors at a time, whose bits fit into a word; in most of them is none.
  for (; lanes() >= 8 && i + 2 * lanes() <= n && found + 2 * lanes() <= room; i += 2 * lanes()) {
    const auto a = hn::Ge(hn::Abs(hn::LoadU(d, x + i)), bound);
    const auto b = hn::Ge(hn::Abs(hn::LoadU(d, x + i + lanes())), bound);
    if (hn::AllFalse(d, hn::Or(a, b))) continue;
    uint8_t bytes[2 * HWY_MAX_BYTES / 32 + 8] = {};
    hn::StoreMaskBits(d, a, bytes);
    hn::StoreMaskBits(d, b, bytes + lanes() / 8);
    uint64_t bits;
    std::memcpy(&bits, bytes, sizeof bits);
    for (; bits; bits &= bits - 1)
      indices[found++] = static_cast<int32_t>(i + __builtin_ctzll(bits));
  }
  for (; i < n && found < room; ++i)
    if (std::fabs(x[i]) >= least) indices[found++] = static_cast<int32_t>(i);
  return found;
}

void AddTo(const float* x, int64_t n, float* to) {
  const D d;
  int64_t i = 0;
  for (; i + lanes() <= n; i += lanes())
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, x + i)), d, to + i);
  for (; i < n; ++i) to[i] += x[i];
}

void CopyPastCache(const float* x, int64_t n, float* to) {
  const D d;
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(to + i) % HWY_MAX_BYTES; ++i) to[i] = x[i];
  for (; i + lanes() <= n; i += lanes()) hn::Stream(hn::LoadU(d, x + i), d, to + i);
  hwy::FlushStream();
  for (; i < n; ++i) to[i] = x[i];
}

// Several factors at a time, so that a row is read once for all of them.
template <int kRank>
void ProjectRowsOf(const float* m, int64_t rows, int64_t cols, const float* right, float* left) {
  const D d;
  for (int64_t i = 0; i < rows; ++i, m += cols) {
    V sum[kRank];
    float tail[kRank] = {};
    for (int j = 0; j < kRank; ++j) sum[j] = hn::Zero(d);
    int64_t k = 0;
    for (; k + lanes() <= cols; k += lanes()) {
      const V v = hn::LoadU(d, m + k);
      for (int j = 0; j < kRank; ++j)
        sum[j] = hn::MulAdd(v, hn::LoadU(d, right + j * cols + k), sum[j]);
    }
    for (; k < cols; ++k)
      for (int j = 0; j < kRank; ++j) tail[j] += m[k] * right[j * cols + k];
    for (int j = 0; j < kRank; ++j)
      left[j * rows + i] = hn::GetLane(hn::SumOfLanes(d, sum[j])) + tail[j];
  }
}

void ProjectRows(const float* m, int64_t rows, int64_t cols, const float* right, int64_t rank,
                 float* left) {
  int64_t j = 0;
  for (; j + 4 <= rank; j += 4) ProjectRowsOf<4>(m, rows, cols, right + j * cols, left + j * rows);
  for (; j + 2 <= rank; j += 2) ProjectRowsOf<2>(m, rows, cols, right + j * cols, left + j * rows);
  if (j < rank) ProjectRowsOf<1>(m, rows, cols, right + j * cols, left + j * rows);
}

template <int kRows>
void AddRows(const float* m, int64_t cols, const float* left, float* to) {
  const D d;
  V p[kRows];
  for (int r = 0; r < kRows; ++r) p[r] = hn::Set(d, left[r]);
  int64_t k = 0;
  for (; k + lanes() <= cols; k += lanes()) {
    V sum = hn::LoadU(d, to + k);
    for (int r = 0; r < kRows; ++r) sum = hn::MulAdd(p[r], hn::LoadU(d, m + r * cols + k), sum);
    hn::StoreU(sum, d, to + k);
  }
  for (; k < cols; ++k)
    for (int r = 0; r < kRows; ++r) to[k] += left[r] * m[r * cols + k];
}

void ProjectCols(const float* m, int64_t rows, int64_t cols, const float* left, int64_t rank,
                 float* right) {
  std::fill_n(right, rank * cols, 0.0f);
  int64_t i = 0;
  for (; i + 8 <= rows; i += 8)
    for (int64_t j = 0; j < rank; ++j)
      AddRows<8>(m + i * cols, cols, left + j * rows + i, right + j * cols);
  for (; i < rows; ++i)
    for (int64_t j = 0; j < rank; ++j)
      AddRows<1>(m + i * cols, cols, left + j * rows + i, right + j * cols);
}

// Every rank makes this product for itself: no fused operation, whatever the machine.
void RowOfProduct(const float* left, int64_t left_stride, const float* right, int64_t right_stride,
                  int64_t rank, int64_t n, float* to) {
  const D d;
  int64_t k = 0;
  for (; k + lanes() <= n; k += lanes()) {
    V sum = hn::Mul(hn::Set(d, left[0]), hn::LoadU(d, right + k));
    for (int64_t j = 1; j < rank; ++j)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, left[j * left_stride]),
                                 hn::LoadU(d, right + j * right_stride + k)));
    hn::StoreU(sum, d, to + k);
  }
  for (; k < n; ++k) {
    float sum = left[0] * right[k];
    for (int64_t j = 1; j < rank; ++j) sum += left[j * left_stride] * right[j * right_stride + k];
    to[k] = sum;
  }
}

void Scale(const float* x, int64_t n, float factor, float* to) {
  const D d;
  const V f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes() <= n; i += lanes()) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, to + i);
  for (; i < n; ++i) to[i] = x[i] * factor;
}

void ErrorOf(const float* x, const float* from, float factor, int64_t n, float* error) {
  const D d;
  const V f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes() <= n; i += lanes())
    hn::StoreU(hn::Sub(hn::LoadU(d, x + i), hn::Mul(hn::LoadU(d, from + i), f)), d, error + i);
  for (; i < n; ++i) error[i] = x[i] - from[i] * factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::codec_kernels_targets
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::codec_kernels_targets {
HWY_EXPORT(AddKept);
HWY_EXPORT(LargestOf);
HWY_EXPORT(Energy);
HWY_EXPORT(Magnitude);
HWY_EXPORT(Quantize);
HWY_EXPORT(Dequantize);
HWY_EXPORT(DequantizeAdd);
HWY_EXPORT(DequantizeSubtract);
HWY_EXPORT(PackSigns);
HWY_EXPORT(AddSigns);
HWY_EXPORT(Collect);
HWY_EXPORT(AddTo);
HWY_EXPORT(CopyPastCache);
HWY_EXPORT(ProjectRows);
HWY_EXPORT(ProjectCols);
HWY_EXPORT(RowOfProduct);
HWY_EXPORT(Scale);
HWY_EXPORT(ErrorOf);
}  // namespace trireme::codec_kernels_targets

namespace trireme::codec_kernels {

using namespace codec_kernels_targets;  // NOLINT: the dispatch tables

Largest add_kept(float* x, const float* kept, int64_t n) {
  Largest l{0, 0};
  HWY_DYNAMIC_DISPATCH(AddKept)(x, kept, n, &l.sum, &l.kept);
  return l;
}
float largest(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(LargestOf)(x, n); }
double energy(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Energy)(x, n); }
double magnitude(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Magnitude)(x, n); }
void quantize(const float* x, int64_t n, int64_t block, float* scales, int8_t* q) {
  HWY_DYNAMIC_DISPATCH(Quantize)(x, n, block, scales, q);
}
void dequantize(const int8_t* q, const float* scales, int64_t block, int64_t begin, int64_t end,
                float factor, float* to) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(q, scales, block, begin, end, factor, to);
}
void dequantize_add(const int8_t* q, const float* scales, int64_t block, int64_t begin, int64_t end,
                    float* to) {
  HWY_DYNAMIC_DISPATCH(DequantizeAdd)(q, scales, block, begin, end, to);
}
void dequantize_subtract(const int8_t* q, const float* scales, int64_t block, int64_t begin,
                         int64_t end, const float* from, float* to) {
  HWY_DYNAMIC_DISPATCH(DequantizeSubtract)(q, scales, block, begin, end, from, to);
}
void pack_signs(const float* x, int64_t n, uint8_t* bits) {
  HWY_DYNAMIC_DISPATCH(PackSigns)(x, n, bits);
}
void add_signs(const uint8_t* bits, int64_t n, float scale, float* to) {
  HWY_DYNAMIC_DISPATCH(AddSigns)(bits, n, scale, to);
}
int64_t collect(const float* x, int64_t n, float least, int32_t* indices, int64_t room) {
  return HWY_DYNAMIC_DISPATCH(Collect)(x, n, least, indices, room);
}
void add_to(const float* x, int64_t n, float* to) { HWY_DYNAMIC_DISPATCH(AddTo)(x, n, to); }
void copy_past_cache(const float* x, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(CopyPastCache)(x, n, to);
}
void project_rows(const float* m, int64_t rows, int64_t cols, const float* right, int64_t rank,
                  float* left) {
  HWY_DYNAMIC_DISPATCH(ProjectRows)(m, rows, cols, right, rank, left);
}
void project_cols(const float* m, int64_t rows, int64_t cols, const float* left, int64_t rank,
                  float* right) {
  HWY_DYNAMIC_DISPATCH(ProjectCols)(m, rows, cols, left, rank, right);
}
void row_of_product(const float* left, int64_t left_stride, const float* right,
                    int64_t right_stride, int64_t rank, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(RowOfProduct)(left, left_stride, right, right_stride, rank, n, to);
}
void scale(const float* x, int64_t n, float factor, float* to) {
  HWY_DYNAMIC_DISPATCH(Scale)(x, n, factor, to);
}
void error_of(const float* x, const float* from, float factor, int64_t n, float* error) {
  HWY_DYNAMIC_DISPATCH(ErrorOf)(x, from, factor, n, error);
}

}  // namespace trireme::codec_kernels
#endif  // HWY_ONCE
