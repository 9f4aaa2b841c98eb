// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rule_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/optim/norm_kernels.h"

// Vectors are members of the rules below, which targets with sizeless vectors cannot have.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/rule_kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::rule_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The arrays of a rule, by number; a null one is not used.
template <class T, size_t kRows>
using Rows = std::array<T*, kRows>;

// rule(rows, i) computes the vector that begins at element i. The last elements go through whole
// vectors on the stack: the same operations, and no byte beyond the range is touched. Row r is
// written where bit r of kWrites is set.
template <unsigned kWrites, class T, size_t kRows, class Rule>
HWY_INLINE void run(const Rows<T, kRows>& rows, size_t n, const Rule& rule) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<T>());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) rule(rows, i);
  if (const size_t bytes = (n - i) * sizeof(T)) {
    HWY_ALIGN T tail[kRows][hn::MaxLanes(hn::ScalableTag<T>())] = {};
    Rows<T, kRows> tails;
    for (size_t r = 0; r < kRows; ++r) {
      tails[r] = rows[r] ? tail[r] : nullptr;
      if (rows[r]) std::memcpy(tail[r], rows[r] + i, bytes);
    }
    rule(tails, 0);
    for (size_t r = 0; r < kRows; ++r)
      if ((kWrites >> r & 1) && rows[r]) std::memcpy(rows[r] + i, tail[r], bytes);
  }
}

template <class T>
struct Lane {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static HWY_INLINE V set(double x) { return hn::Set(D(), static_cast<T>(x)); }
  static HWY_INLINE V load(const T* x) { return hn::LoadU(D(), x); }
  static HWY_INLINE void store(V v, T* x) { hn::StoreU(v, D(), x); }
};

template <class T>
struct Lion : Lane<T> {  // rows: p, g, m
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE Lion(const LionScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        keep(L::set(s.keep)),
        beta1(L::set(s.beta1)),
        beta2(L::set(s.beta2)),
        rest1(L::set(1 - s.beta1)),
        rest2(L::set(1 - s.beta2)),
        lr(L::set(s.lr)),
        minus_lr(L::set(-s.lr)) {}
  HWY_INLINE void operator()(const Rows<T, 3>& r, size_t i) const {
    const V grad = hn::Mul(L::load(r[1] + i), grad_scale);
    const V m = L::load(r[2] + i), zero = hn::Zero(typename L::D());
    const V c = hn::Add(hn::Mul(m, beta1), hn::Mul(rest1, grad));
    const V step =
        hn::IfThenElse(hn::Lt(zero, c), lr, hn::IfThenElse(hn::Lt(c, zero), minus_lr, zero));
    L::store(hn::Sub(hn::Mul(L::load(r[0] + i), keep), step), r[0] + i);
    L::store(hn::Add(hn::Mul(m, beta2), hn::Mul(rest2, grad)), r[2] + i);
  }
  V grad_scale, keep, beta1, beta2, rest1, rest2, lr, minus_lr;
};

template <class T, bool kL2, bool kCentered, bool kMomentum>
struct Rmsprop : Lane<T> {  // rows: p, g, v, mean, buffer
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE Rmsprop(const RmspropScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        l2(L::set(s.l2)),
        alpha(L::set(s.alpha)),
        rest(L::set(1 - s.alpha)),
        eps(L::set(s.eps)),
        momentum(L::set(s.momentum)),
        lr(L::set(s.lr)) {}
  HWY_INLINE void operator()(const Rows<T, 5>& r, size_t i) const {
    const V p = L::load(r[0] + i);
    V grad = hn::Mul(L::load(r[1] + i), grad_scale);
    if (kL2) grad = hn::Add(grad, hn::Mul(l2, p));
    const V v = hn::Add(hn::Mul(L::load(r[2] + i), alpha), hn::Mul(hn::Mul(rest, grad), grad));
    L::store(v, r[2] + i);
    V spread = v;
    if (kCentered) {
      const V mean = hn::Add(hn::Mul(L::load(r[3] + i), alpha), hn::Mul(rest, grad));
      L::store(mean, r[3] + i);
      // Rounding may put a variance of nothing below zero.
      spread = hn::Max(hn::Zero(typename L::D()), hn::Sub(v, hn::Mul(mean, mean)));
    }
    V step = hn::Div(grad, hn::Add(hn::Sqrt(spread), eps));
    if (kMomentum) {
      step = hn::Add(hn::Mul(L::load(r[4] + i), momentum), step);
      L::store(step, r[4] + i);
    }
    L::store(hn::Sub(p, hn::Mul(lr, step)), r[0] + i);
  }
  V grad_scale, l2, alpha, rest, eps, momentum, lr;
};

template <class T, bool kL2>
struct Adagrad : Lane<T> {  // rows: p, g, sum
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE Adagrad(const AdagradScalars& s)
      : grad_scale(L::set(s.grad_scale)), l2(L::set(s.l2)), eps(L::set(s.eps)), lr(L::set(s.lr)) {}
  HWY_INLINE void operator()(const Rows<T, 3>& r, size_t i) const {
    const V p = L::load(r[0] + i);
    V grad = hn::Mul(L::load(r[1] + i), grad_scale);
    if (kL2) grad = hn::Add(grad, hn::Mul(l2, p));
    const V sum = hn::Add(L::load(r[2] + i), hn::Mul(grad, grad));
    L::store(sum, r[2] + i);
    const V step = hn::Div(grad, hn::Add(hn::Sqrt(sum), eps));
    L::store(hn::Sub(p, hn::Mul(lr, step)), r[0] + i);
  }
  V grad_scale, l2, eps, lr;
};

template <class T, bool kMomentum>
struct Lars : Lane<T> {  // rows: p, g, buffer
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE Lars(const LarsScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        decay(L::set(s.weight_decay)),
        momentum(L::set(s.momentum)),
        rate(L::set(s.rate)) {}
  HWY_INLINE void operator()(const Rows<T, 3>& r, size_t i) const {
    const V p = L::load(r[0] + i);
    const V grad = hn::Add(hn::Mul(L::load(r[1] + i), grad_scale), hn::Mul(decay, p));
    V step = hn::Mul(rate, grad);
    if (kMomentum) {
      step = hn::Add(hn::Mul(L::load(r[2] + i), momentum), step);
      L::store(step, r[2] + i);
    }
    L::store(hn::Sub(p, step), r[0] + i);
  }
  V grad_scale, decay, momentum, rate;
};

template <class T>
struct LambMoments : Lane<T> {  // rows: g, m, v
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE LambMoments(const LambScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        beta1(L::set(s.beta1)),
        beta2(L::set(s.beta2)),
        rest1(L::set(1 - s.beta1)),
        rest2(L::set(1 - s.beta2)) {}
  HWY_INLINE void operator()(const Rows<T, 3>& r, size_t i) const {
    const V grad = hn::Mul(L::load(r[0] + i), grad_scale);
    L::store(hn::Add(hn::Mul(L::load(r[1] + i), beta1), hn::Mul(rest1, grad)), r[1] + i);
    L::store(hn::Add(hn::Mul(L::load(r[2] + i), beta2), hn::Mul(hn::Mul(rest2, grad), grad)),
             r[2] + i);
  }
  V grad_scale, beta1, beta2, rest1, rest2;
};

template <class T>
struct LambDirection : Lane<T> {  // rows: p, m, v, u
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE LambDirection(const LambScalars& s)
      : eps(L::set(s.eps)),
        decay(L::set(s.weight_decay)),
        moment_scale(L::set(s.moment_scale)),
        root_scale(L::set(s.root_scale)) {}
  HWY_INLINE void operator()(const Rows<T, 4>& r, size_t i) const {
    const V root = hn::Add(hn::Mul(hn::Sqrt(L::load(r[2] + i)), root_scale), eps);
    const V u = hn::Div(hn::Mul(L::load(r[1] + i), moment_scale), root);
    L::store(hn::Add(u, hn::Mul(decay, L::load(r[0] + i))), r[3] + i);
  }
  V eps, decay, moment_scale, root_scale;
};

template <class T>
struct Subtract : Lane<T> {  // rows: p, u
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE Subtract(double s) : step(L::set(s)) {}
  HWY_INLINE void operator()(const Rows<T, 2>& r, size_t i) const {
    L::store(hn::Sub(L::load(r[0] + i), hn::Mul(step, L::load(r[1] + i))), r[0] + i);
  }
  V step;
};

template <class T>
HWY_INLINE void lion(const Rows<T, 3>& rows, size_t n, const LionScalars& s) {
  run<0b101>(rows, n, Lion<T>(s));
}

template <class T, bool kL2>
HWY_INLINE void rmsprop(const Rows<T, 5>& rows, size_t n, const RmspropScalars& s) {
  constexpr unsigned kWrites = 0b11101;
  if (s.centered)
    s.momentum != 0 ? run<kWrites>(rows, n, Rmsprop<T, kL2, true, true>(s))
                    : run<kWrites>(rows, n, Rmsprop<T, kL2, true, false>(s));
  else
    s.momentum != 0 ? run<kWrites>(rows, n, Rmsprop<T, kL2, false, true>(s))
                    : run<kWrites>(rows, n, Rmsprop<T, kL2, false, false>(s));
}

template <class T>
HWY_INLINE void rmsprop(const Rows<T, 5>& rows, size_t n, const RmspropScalars& s) {
  s.l2 != 0 ? rmsprop<T, true>(rows, n, s) : rmsprop<T, false>(rows, n, s);
}

template <class T>
HWY_INLINE void adagrad(const Rows<T, 3>& rows, size_t n, const AdagradScalars& s) {
  s.l2 != 0 ? run<0b101>(rows, n, Adagrad<T, true>(s)) : run<0b101>(rows, n, Adagrad<T, false>(s));
}

template <class T>
HWY_INLINE void lars(const Rows<T, 3>& rows, size_t n, const LarsScalars& s) {
  s.momentum != 0 ? run<0b101>(rows, n, Lars<T, true>(s)) : run<0b101>(rows, n, Lars<T, false>(s));
}

void LionFloat(const Rows<float, 3>& r, size_t n, const LionScalars& s) { lion(r, n, s); }
void LionDouble(const Rows<double, 3>& r, size_t n, const LionScalars& s) { lion(r, n, s); }
void RmspropFloat(const Rows<float, 5>& r, size_t n, const RmspropScalars& s) { rmsprop(r, n, s); }
void RmspropDouble(const Rows<double, 5>& r, size_t n, const RmspropScalars& s) {
  rmsprop(r, n, s);
}
void AdagradFloat(const Rows<float, 3>& r, size_t n, const AdagradScalars& s) { adagrad(r, n, s); }
void AdagradDouble(const Rows<double, 3>& r, size_t n, const AdagradScalars& s) {
  adagrad(r, n, s);
}
void LarsFloat(const Rows<float, 3>& r, size_t n, const LarsScalars& s) { lars(r, n, s); }
void LarsDouble(const Rows<double, 3>& r, size_t n, const LarsScalars& s) { lars(r, n, s); }
void LambMomentsFloat(const Rows<float, 3>& r, size_t n, const LambScalars& s) {
  run<0b110>(r, n, LambMoments<float>(s));
}
void LambMomentsDouble(const Rows<double, 3>& r, size_t n, const LambScalars& s) {
  run<0b110>(r, n, LambMoments<double>(s));
}
void LambDirectionFloat(const Rows<float, 4>& r, size_t n, const LambScalars& s) {
  run<0b1000>(r, n, LambDirection<float>(s));
}
void LambDirectionDouble(const Rows<double, 4>& r, size_t n, const LambScalars& s) {
  run<0b1000>(r, n, LambDirection<double>(s));
}
void SubtractFloat(const Rows<float, 2>& r, size_t n, double step) {
  run<0b01>(r, n, Subtract<float>(step));
}
void SubtractDouble(const Rows<double, 2>& r, size_t n, double step) {
  run<0b01>(r, n, Subtract<double>(step));
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::rule_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::rule_kernels {
HWY_EXPORT(LionFloat);
HWY_EXPORT(LionDouble);
HWY_EXPORT(RmspropFloat);
HWY_EXPORT(RmspropDouble);
HWY_EXPORT(AdagradFloat);
HWY_EXPORT(AdagradDouble);
HWY_EXPORT(LarsFloat);
HWY_EXPORT(LarsDouble);
HWY_EXPORT(LambMomentsFloat);
HWY_EXPORT(LambMomentsDouble);
HWY_EXPORT(LambDirectionFloat);
HWY_EXPORT(LambDirectionDouble);
HWY_EXPORT(SubtractFloat);
HWY_EXPORT(SubtractDouble);
}  // namespace trireme::rule_kernels

namespace trireme {

using namespace rule_kernels;  // NOLINT: the dispatch tables

namespace {

// Rows are one type; const ones are never written (kWrites).
template <class T>
T* row(const T* x) {
  return const_cast<T*>(x);
}

template <class T>
constexpr bool kFloat = sizeof(T) == sizeof(float);

// block(begin, count) over [0, n) in the blocks in which norms are added.
template <class Block>
void for_blocks(int64_t n, const Block& block) {
  for (int64_t i = 0; i < n; i += kNormBlock) block(i, std::min(kNormBlock, n - i));
}

template <class T>
void lamb_direction(const T* p, const T* m, const T* v, T* u, int64_t n, const LambScalars& s) {
  const std::array<T*, 4> rows{row(p), row(m), row(v), u};
  if constexpr (kFloat<T>)
    HWY_DYNAMIC_DISPATCH(LambDirectionFloat)(rows, static_cast<size_t>(n), s);
  else
    HWY_DYNAMIC_DISPATCH(LambDirectionDouble)(rows, static_cast<size_t>(n), s);
}

}  // namespace

template <class T>
void lion_pass(T* p, const T* g, T* m, int64_t n, const LionScalars& s) {
  const std::array<T*, 3> rows{p, row(g), m};
  if constexpr (kFloat<T>)
    HWY_DYNAMIC_DISPATCH(LionFloat)(rows, static_cast<size_t>(n), s);
  else
    HWY_DYNAMIC_DISPATCH(LionDouble)(rows, static_cast<size_t>(n), s);
}

template <class T>
void rmsprop_pass(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const RmspropScalars& s) {
  const std::array<T*, 5> rows{p, row(g), v, mean, buffer};
  if constexpr (kFloat<T>)
    HWY_DYNAMIC_DISPATCH(RmspropFloat)(rows, static_cast<size_t>(n), s);
  else
    HWY_DYNAMIC_DISPATCH(RmspropDouble)(rows, static_cast<size_t>(n), s);
}

template <class T>
void adagrad_pass(T* p, const T* g, T* sum, int64_t n, const AdagradScalars& s) {
  const std::array<T*, 3> rows{p, row(g), sum};
  if constexpr (kFloat<T>)
    HWY_DYNAMIC_DISPATCH(AdagradFloat)(rows, static_cast<size_t>(n), s);
  else
    HWY_DYNAMIC_DISPATCH(AdagradDouble)(rows, static_cast<size_t>(n), s);
}

template <class T>
void lars_pass(T* p, const T* g, T* buffer, int64_t n, const LarsScalars& s) {
  const std::array<T*, 3> rows{p, row(g), buffer};
  if constexpr (kFloat<T>)
    HWY_DYNAMIC_DISPATCH(LarsFloat)(rows, static_cast<size_t>(n), s);
  else
    HWY_DYNAMIC_DISPATCH(LarsDouble)(rows, static_cast<size_t>(n), s);
}

template <class T>
void lamb_moments(const T* g, T* m, T* v, int64_t n, const LambScalars& s) {
  const std::array<T*, 3> rows{row(g), m, v};
  if constexpr (kFloat<T>)
    HWY_DYNAMIC_DISPATCH(LambMomentsFloat)(rows, static_cast<size_t>(n), s);
  else
    HWY_DYNAMIC_DISPATCH(LambMomentsDouble)(rows, static_cast<size_t>(n), s);
}

template <class T>
void lamb_square_sums(const T* p, const T* m, const T* v, int64_t n, const LambScalars& s,
                      double* p_sums, double* u_sums) {
  block_square_sums(p, n, p_sums);
  for_blocks(n, [&](int64_t i, int64_t count) {
    T u[kNormBlock];
    lamb_direction(p + i, m + i, v + i, u, count, s);
    block_square_sums(u, count, u_sums++);
  });
}

template <class T>
void lamb_update(T* p, const T* m, const T* v, int64_t n, const LambScalars& s, double step) {
  for_blocks(n, [&](int64_t i, int64_t count) {
    T u[kNormBlock];
    lamb_direction(p + i, m + i, v + i, u, count, s);
    const std::array<T*, 2> rows{p + i, u};
    if constexpr (kFloat<T>)
      HWY_DYNAMIC_DISPATCH(SubtractFloat)(rows, static_cast<size_t>(count), step);
    else
      HWY_DYNAMIC_DISPATCH(SubtractDouble)(rows, static_cast<size_t>(count), step);
  });
}

#define TRIREME_INSTANTIATE(T)                                                              \
  template void lion_pass(T*, const T*, T*, int64_t, const LionScalars&);                   \
  template void rmsprop_pass(T*, const T*, T*, T*, T*, int64_t, const RmspropScalars&);     \
  template void adagrad_pass(T*, const T*, T*, int64_t, const AdagradScalars&);             \
  template void lars_pass(T*, const T*, T*, int64_t, const LarsScalars&);                   \
  template void lamb_moments(const T*, T*, T*, int64_t, const LambScalars&);                \
  template void lamb_square_sums(const T*, const T*, const T*, int64_t, const LambScalars&, \
                                 double*, double*);                                         \
  template void lamb_update(T*, const T*, const T*, int64_t, const LambScalars&, double)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme
#endif  // HWY_ONCE
