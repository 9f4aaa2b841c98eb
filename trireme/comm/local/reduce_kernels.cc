// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/reduce_kernels.h"

#include <cstring>

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
  // Masked where the machine has it: a padded copy is a wide load behind narrow stores, which
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

struct Float16 {
  using Stored = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
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
  static HWY_INLINE V load_some(const Stored* p, size_t n) { return load_padded<Float16>(p, n); }
  static HWY_INLINE void store_some(V v, Stored* p, size_t n) { store_padded<Float16>(v, p, n); }
};

struct Sum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
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
    case 1:
      return loop_n<E, Op, Scale, 1>(src, dst, m, scale, count);
    case 2:
      return loop_n<E, Op, Scale, 2>(src, dst, m, scale, count);
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

constexpr size_t kBlock =
    1024;  // elements of the partial results of more than eight sources: stays in L1

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
  HWY_ALIGN T right[kBlock + HWY_MAX_BYTES / sizeof(T)] = {};
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
  HWY_ALIGN T block[kBlock + HWY_MAX_BYTES / sizeof(T)] = {};
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

template <class E, class Op, bool Scale>
void run(const void* const* src, int n, void* const* dst, int m, size_t count) {
  auto s = reinterpret_cast<const typename E::Stored* const*>(src);
  auto t = reinterpret_cast<typename E::Stored* const*>(dst);
  const double scale = 1.0 / n;
  if (n <= 8)
    up_to_eight<E, Op, Scale>(s, n, t, m, scale, count);
  else
    many<E, Op, Scale>(s, n, t, m, scale, count);
}

template <class E>
void by_op(RedOp op, const void* const* src, int n, void* const* dst, int m, size_t count) {
  switch (op) {
    case RedOp::sum:
      return run<E, Sum, false>(src, n, dst, m, count);
    case RedOp::avg:
      return run<E, Sum, true>(src, n, dst, m, count);
    case RedOp::min:
      return run<E, Min, false>(src, n, dst, m, count);
    case RedOp::max:
      return run<E, Max, false>(src, n, dst, m, count);
  }
}

void reduce_here(DType dtype, RedOp op, const void* const* src, int n, void* const* dst, int m,
                 size_t count) {
  switch (dtype) {
    case DType::f64:
      return by_op<Plain<double>>(op, src, n, dst, m, count);
    case DType::f32:
      return by_op<Plain<float>>(op, src, n, dst, m, count);
    case DType::f16:
      return by_op<Float16>(op, src, n, dst, m, count);
    case DType::bf16:
      return by_op<BFloat16>(op, src, n, dst, m, count);
    case DType::i64:
      return by_op<Plain<int64_t>>(op, src, n, dst, m, count);
    case DType::i32:
      return by_op<Plain<int32_t>>(op, src, n, dst, m, count);
    case DType::u8:
      return by_op<Plain<uint8_t>>(op, src, n, dst, m, count);
  }
}

const char* target_here() { return hwy::TargetName(HWY_TARGET); }

}  // namespace trireme::local::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::local {
HWY_EXPORT(reduce_here);
HWY_EXPORT(target_here);

void reduce(DType dtype, RedOp op, const void* const* src, int n, void* const* dst, int m,
            size_t count) {
  HWY_DYNAMIC_DISPATCH(reduce_here)(dtype, op, src, n, dst, m, count);
}

const char* reduce_target() { return HWY_DYNAMIC_DISPATCH(target_here)(); }
}  // namespace trireme::local
#endif
