// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/reduce_kernels.h"

#include <cstring>
#include <type_traits>

// Three targets are enough, and each costs its compile time again.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/comm/local/reduce_kernels.cc"
#include <hwy/foreach_target.h>  // includes this file again, once a target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trireme::local::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Up to `n` elements through a padded copy and the same instructions: position changes no bit.
template <class E>
HWY_INLINE typename E::V load_padded(const typename E::Stored* p, size_t n) {
  HWY_ALIGN typename E::Stored padded[HWY_MAX_BYTES / sizeof(typename E::Stored)] = {};
  std::memcpy(padded, p, n * sizeof(typename E::Stored));
  return E::load(padded);
}
template <class E>
HWY_INLINE void store_padded(typename E::V v, typename E::Stored* p, size_t n) {
  HWY_ALIGN typename E::Stored padded[HWY_MAX_BYTES / sizeof(typename E::Stored)];
  E::store(v, padded);
  std::memcpy(p, padded, n * sizeof(typename E::Stored));
}

// How an element type is read into the type that it is computed in, and written back.
template <class T>
struct Plain {
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static HWY_INLINE V load(const Stored* p) { return hn::LoadU(D(), p); }
  static HWY_INLINE void store(V v, Stored* p) { hn::StoreU(v, D(), p); }
  // Masked if the machine supports it: a padded copy is a wide load behind narrow stores, which
  // stalls.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static constexpr bool kMasked = sizeof(T) >= 4;
#else
  static constexpr bool kMasked = false;
#endif
  static HWY_INLINE V load_some(const Stored* p, size_t n) {
    if constexpr (kMasked)
      return hn::MaskedLoad(hn::FirstN(D(), n), D(), p);
    else
      return load_padded<Plain>(p, n);
  }
  static HWY_INLINE void store_some(V v, Stored* p, size_t n) {
    if constexpr (kMasked)
      hn::BlendedStore(v, hn::FirstN(D(), n), D(), p);
    else
      store_padded<Plain>(v, p, n);
  }
};

struct BFloat16 {
  using Stored = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static HWY_INLINE V load(const Stored* p) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
  }
  static HWY_INLINE void store(V v, Stored* p) {  // nearest even; a NaN stays a NaN
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<D> di32;
    auto bits = hn::BitCast(d32, v);
    auto lsb = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
    auto rounded = hn::Add(bits, hn::Add(lsb, hn::Set(d32, 0x7FFF)));
    rounded = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)),
                             hn::Or(bits, hn::Set(d32, 0x400000)), rounded);
    // The upper half as a value below 2^16, which DemoteTo (saturating, from signed) keeps exactly.
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, hn::ShiftRight<16>(rounded))), d16, p);
  }
  static HWY_INLINE V load_some(const Stored* p, size_t n) { return load_padded<BFloat16>(p, n); }
  static HWY_INLINE void store_some(V v, Stored* p, size_t n) { store_padded<BFloat16>(v, p, n); }
};

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
// Without vectors Highway 1.0 truncates halves and knows no infinity: our own, exact.
HWY_INLINE float float_of(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
  if (exponent == 31) bits = sign | 0x7F800000 | fraction << 13 | (fraction ? 0x400000 : 0);
  float value;
  std::memcpy(&value, &bits, sizeof value);
  if (exponent == 0) value = (sign ? -0x1p-24f : 0x1p-24f) * static_cast<float>(fraction);
  return value;
}
HWY_INLINE uint16_t half_of(float value) {  // nearest even
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7FFFFFFF;
  uint32_t half = (bits + 0xFFF + (bits >> 13 & 1) - (112u << 23)) >> 13;
  if (bits > 0x7F800000) {
    half = 0x7E00 | (bits >> 13 & 0x1FF);
  } else if (bits >= 0x477FF000) {
    half = 0x7C00;
  } else if (bits < 0x38800000) {  // below the normal halves: the sum rounds to their step
    const float sum = (sign ? -value : value) + 0.5f;
    std::memcpy(&half, &sum, sizeof half);
    half -= 0x3F000000;
  }
  return static_cast<uint16_t>(sign | half);
}
#endif

struct Float16 {
  using Stored = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  static HWY_INLINE V load(const Stored* p) {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    for (size_t i = 0; i < hn::Lanes(D()); ++i) lanes[i] = float_of(p[i]);
    return hn::LoadU(D(), lanes);
  }
  static HWY_INLINE void store(V v, Stored* p) {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(v, D(), lanes);
    for (size_t i = 0; i < hn::Lanes(D()); ++i) p[i] = half_of(lanes[i]);
  }
#else
  static HWY_INLINE V load(const Stored* p) {
    const hn::Rebind<uint16_t, D> du;
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(D(), hn::BitCast(dh, hn::LoadU(du, p)));
  }
  static HWY_INLINE void store(V v, Stored* p) {
    const hn::Rebind<uint16_t, D> du;
    const hn::Rebind<hwy::float16_t, D> dh;
    hn::StoreU(hn::BitCast(du, hn::DemoteTo(dh, v)), du, p);
  }
#endif
  static HWY_INLINE V load_some(const Stored* p, size_t n) { return load_padded<Float16>(p, n); }
  static HWY_INLINE void store_some(V v, Stored* p, size_t n) { store_padded<Float16>(v, p, n); }
};

// Integers add and multiply alike whether signed or not: one unsigned type of each width serves.
struct Sum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR
    if constexpr (std::is_unsigned_v<T>)
      return hn::Set(d, static_cast<T>(uint64_t{hn::GetLane(a)} * hn::GetLane(b)));
    else
      return hn::Mul(a, b);
#else
    if constexpr (std::is_same_v<T, uint8_t>) {  // in the two halves of 16-bit lanes
      const hn::Repartition<uint16_t, D> wide;
      const auto a16 = hn::BitCast(wide, a), b16 = hn::BitCast(wide, b);
      const auto even = hn::And(hn::Mul(a16, b16), hn::Set(wide, 0xFF));
      const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16));
      return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
    } else if constexpr (std::is_same_v<T, uint64_t>) {  // from 32-bit products
      const hn::Repartition<uint32_t, D> narrow;
      const auto lo_a = hn::BitCast(narrow, a), lo_b = hn::BitCast(narrow, b);
      const auto hi_a = hn::BitCast(narrow, hn::ShiftRight<32>(a));
      const auto hi_b = hn::BitCast(narrow, hn::ShiftRight<32>(b));
      const auto cross = hn::Add(hn::MulEven(lo_a, hi_b), hn::MulEven(hi_a, lo_b));
      return hn::Add(hn::MulEven(lo_a, lo_b), hn::ShiftLeft<32>(cross));
    } else {
      return hn::Mul(a, b);
    }
#endif
  }
};
#if HWY_TARGET != HWY_SCALAR
struct ComplexProduct {  // lanes: real, imaginary, real, …
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    const V x = hn::Mul(hn::DupEven(a), b), y = hn::Mul(hn::DupOdd(a), hn::Reverse2(d, b));
    return hn::OddEven(hn::Add(x, y), hn::Sub(x, y));
  }
};
#endif
struct And {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::And(a, b);
  }
};
struct Or {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Or(a, b);
  }
};
struct Xor {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Xor(a, b);
  }
};
struct Min {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>())
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Min(a, b)));
    else
      return hn::Min(a, b);
  }
};
struct Max {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>())
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
    else
      return hn::Max(a, b);
  }
};

constexpr int split_of(int n) {
  int p = 1;
  while (p * 2 < n) p *= 2;
  return p;
}

// The expression over sources First … First+N-1, in registers; `load` reads from one of them.
template <class E, class Op, int First, int N, class Load>
HWY_INLINE typename E::V tree(const typename E::Stored* const* src, const Load& load) {
  if constexpr (N == 1) {
    return load(src[First]);
  } else {
    constexpr int kLeft = split_of(N);
    return Op::apply(typename E::D(), tree<E, Op, First, kLeft>(src, load),
                     tree<E, Op, First + kLeft, N - kLeft>(src, load));
  }
}

template <class E, class V>
HWY_INLINE V scaled(V v, double scale) {
  using T = hn::TFromD<typename E::D>;
  if constexpr (hwy::IsFloat<T>())
    return hn::Mul(v, hn::Set(typename E::D(), static_cast<T>(scale)));
  return v;
}

template <class E, class Op, int N, int M, bool Scale>
void loop(const typename E::Stored* const* sources, typename E::Stored* const* targets, int m,
          double scale, size_t count) {
  using Stored = typename E::Stored;
  const size_t lanes = hn::Lanes(typename E::D());
  const Stored* src[N];
  for (int k = 0; k < N; ++k) src[k] = sources[k];
  Stored* dst[M > 0 ? M : 1];
  if constexpr (M > 0)
    for (int j = 0; j < M; ++j) dst[j] = targets[j];
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto v = tree<E, Op, 0, N>(src, [i](const Stored* p) HWY_ATTR { return E::load(p + i); });
    if constexpr (Scale) v = scaled<E>(v, scale);
    if constexpr (M > 0) {
      for (int j = 0; j < M; ++j) E::store(v, dst[j] + i);
    } else {
      for (int j = 0; j < m; ++j) E::store(v, targets[j] + i);
    }
  }
  if (i == count) return;
  const size_t left = count - i;
  auto v = tree<E, Op, 0, N>(
      src, [i, left](const Stored* p) HWY_ATTR { return E::load_some(p + i, left); });
  if constexpr (Scale) v = scaled<E>(v, scale);
  for (int j = 0; j < m; ++j) E::store_some(v, targets[j] + i, left);
}

template <class E, class Op, bool Scale, int N>
void loop_n(const typename E::Stored* const* src, typename E::Stored* const* dst, int m,
            double scale, size_t count) {
  if constexpr (N == 2) {  // the pair is the hot case: its pointers stay in registers
    if (m == 1) return loop<E, Op, N, 1, Scale>(src, dst, m, scale, count);
    if (m == 2) return loop<E, Op, N, 2, Scale>(src, dst, m, scale, count);
  }
  loop<E, Op, N, 0, Scale>(src, dst, m, scale, count);
}

template <class E, class Op, bool Scale>
void up_to_eight(const typename E::Stored* const* src, int n, typename E::Stored* const* dst, int m,
                 double scale, size_t count) {
  switch (n) {
    case 3:
      return loop_n<E, Op, Scale, 3>(src, dst, m, scale, count);
    case 4:
      return loop_n<E, Op, Scale, 4>(src, dst, m, scale, count);
    case 5:
      return loop_n<E, Op, Scale, 5>(src, dst, m, scale, count);
    case 6:
      return loop_n<E, Op, Scale, 6>(src, dst, m, scale, count);
    case 7:
      return loop_n<E, Op, Scale, 7>(src, dst, m, scale, count);
    default:
      return loop_n<E, Op, Scale, 8>(src, dst, m, scale, count);
  }
}

constexpr size_t kBlock = 1024;  // elements of the partial results of many sources: stays in L1

// Partial results in the computing type, so that half types are rounded once however many sources
// there are.
template <class E, class Op>
void partial(const typename E::Stored* const* src, int n, size_t begin, size_t count,
             hn::TFromD<typename E::D>* out) {
  using T = hn::TFromD<typename E::D>;
  const typename E::D d;
  const size_t lanes = hn::Lanes(d);
  if (n == 1) {
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) hn::StoreU(E::load(src[0] + begin + i), d, out + i);
    if (i < count) hn::StoreU(E::load_some(src[0] + begin + i, count - i), d, out + i);
    return;
  }
  const int left = split_of(n);
  HWY_ALIGN T right[kBlock + HWY_MAX_BYTES / sizeof(T)];
  partial<E, Op>(src, left, begin, count, out);
  partial<E, Op>(src + left, n - left, begin, count, right);
  for (size_t i = 0; i < count; i += lanes)
    hn::StoreU(Op::apply(d, hn::LoadU(d, out + i), hn::LoadU(d, right + i)), d, out + i);
}

template <class E, class Op, bool Scale>
void many(const typename E::Stored* const* src, int n, typename E::Stored* const* dst, int m,
          double scale, size_t count) {
  using T = hn::TFromD<typename E::D>;
  const typename E::D d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN T block[kBlock + HWY_MAX_BYTES / sizeof(T)];
  HWY_ALIGN typename E::Stored result[kBlock + HWY_MAX_BYTES / sizeof(typename E::Stored)];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t here = count - begin < kBlock ? count - begin : kBlock;
    partial<E, Op>(src, n, begin, here, block);
    for (size_t i = 0; i < here; i += lanes) {
      auto v = hn::LoadU(d, block + i);
      if constexpr (Scale) v = scaled<E>(v, scale);
      E::store(v, result + i);
    }
    for (int j = 0; j < m; ++j)
      std::memcpy(dst[j] + begin, result, here * sizeof(typename E::Stored));
  }
}

// Every instance costs compile time once per target. Three to eight sources go through registers if
// training sums them (`hot`), else through blocks.
template <class E, class Op, bool Scale = false, bool hot = false>
void run(const void* const* src, int n, void* const* dst, int m, size_t count) {
  auto s = reinterpret_cast<const typename E::Stored* const*>(src);
  auto t = reinterpret_cast<typename E::Stored* const*>(dst);
  const double scale = 1.0 / n;
  if (n == 2) return loop_n<E, Op, Scale, 2>(s, t, m, scale, count);
  if constexpr (hot)
    if (n <= 8) return up_to_eight<E, Op, Scale>(s, n, t, m, scale, count);
  many<E, Op, Scale>(s, n, t, m, scale, count);
}

template <class E>
void floats(ReduceOp op, const void* const* src, int n, void* const* dst, int m, size_t count) {
  switch (op) {
    case ReduceOp::sum:
      return run<E, Sum, false, true>(src, n, dst, m, count);
    case ReduceOp::avg:
      return run<E, Sum, true, true>(src, n, dst, m, count);
    case ReduceOp::min:
      return run<E, Min>(src, n, dst, m, count);
    case ReduceOp::max:
      return run<E, Max>(src, n, dst, m, count);
    case ReduceOp::product:
      return run<E, Product>(src, n, dst, m, count);
    default:
      return;  // refused before
  }
}

#if HWY_TARGET == HWY_SCALAR
template <class T>
void product_of(const T* const* src, int n, size_t i, T (&out)[2]) {
  if (n == 1) {
    out[0] = src[0][2 * i], out[1] = src[0][2 * i + 1];
    return;
  }
  T a[2], b[2];
  product_of(src, split_of(n), i, a);
  product_of(src + split_of(n), n - split_of(n), i, b);
  out[0] = a[0] * b[0] - a[1] * b[1], out[1] = a[0] * b[1] + a[1] * b[0];
}
#endif

template <class T>  // of its real and imaginary parts
void complexes(ReduceOp op, const void* const* src, int n, void* const* dst, int m, size_t count) {
  using E = Plain<T>;
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; op == ReduceOp::product && i < count; ++i) {
    T result[2];
    product_of(reinterpret_cast<const T* const*>(src), n, i, result);
    for (int j = 0; j < m; ++j) std::memcpy(static_cast<T*>(dst[j]) + 2 * i, result, sizeof result);
  }
#else
  if (op == ReduceOp::product) return run<E, ComplexProduct>(src, n, dst, m, 2 * count);
#endif
  if (op == ReduceOp::sum || op == ReduceOp::avg) floats<E>(op, src, n, dst, m, 2 * count);
}

template <class Signed, bool is_signed>
void integers(ReduceOp op, const void* const* src, int n, void* const* dst, int m, size_t count) {
  using Unsigned = std::make_unsigned_t<Signed>;
  using E = Plain<std::conditional_t<is_signed, Signed, Unsigned>>;
  constexpr bool hot = sizeof(Signed) >= 4;
  switch (op) {
    case ReduceOp::sum:
      return run<Plain<Unsigned>, Sum, false, hot>(src, n, dst, m, count);
    case ReduceOp::product:
      return run<Plain<Unsigned>, Product>(src, n, dst, m, count);
    case ReduceOp::min:
      return run<E, Min>(src, n, dst, m, count);
    case ReduceOp::max:
      return run<E, Max>(src, n, dst, m, count);
    case ReduceOp::band:
      return run<Plain<uint8_t>, And>(src, n, dst, m, count * sizeof(Signed));
    case ReduceOp::bor:
      return run<Plain<uint8_t>, Or>(src, n, dst, m, count * sizeof(Signed));
    case ReduceOp::bxor:
      return run<Plain<uint8_t>, Xor>(src, n, dst, m, count * sizeof(Signed));
    case ReduceOp::avg:
      return;  // refused before
  }
}

void reduce_here(DType dtype, ReduceOp op, const void* const* src, int n, void* const* dst, int m,
                 size_t count) {
  switch (dtype) {
    case DType::f64:
      return floats<Plain<double>>(op, src, n, dst, m, count);
    case DType::f32:
      return floats<Plain<float>>(op, src, n, dst, m, count);
    case DType::f16:
      return floats<Float16>(op, src, n, dst, m, count);
    case DType::bf16:
      return floats<BFloat16>(op, src, n, dst, m, count);
    case DType::c64:
      return complexes<float>(op, src, n, dst, m, count);
    case DType::c128:
      return complexes<double>(op, src, n, dst, m, count);
    case DType::i64:
      return integers<int64_t, true>(op, src, n, dst, m, count);
    case DType::i32:
      return integers<int32_t, true>(op, src, n, dst, m, count);
    case DType::i16:
      return integers<int16_t, true>(op, src, n, dst, m, count);
    case DType::i8:
      return integers<int8_t, true>(op, src, n, dst, m, count);
    case DType::u8:
      return integers<int8_t, false>(op, src, n, dst, m, count);
  }
}

const char* target_here() { return hwy::TargetName(HWY_TARGET); }

}  // namespace trireme::local::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::local {
HWY_EXPORT(reduce_here);
HWY_EXPORT(target_here);

void reduce(DType dtype, ReduceOp op, const void* const* src, int n, void* const* dst, int m,
            size_t count) {
  if (n == 1) {  // itself
    for (int j = 0; j < m; ++j)
      if (dst[j] != src[0]) std::memcpy(dst[j], src[0], count * size_of(dtype));
    return;
  }
  HWY_DYNAMIC_DISPATCH(reduce_here)(dtype, op, src, n, dst, m, count);
}

const char* reduce_target() { return HWY_DYNAMIC_DISPATCH(target_here)(); }
}  // namespace trireme::local
#endif
