// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rules/rule_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/optim/norm_kernels.h"

// Vectors are members of the rules below, which targets with sizeless vectors cannot have.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/rules/rule_kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#ifndef TRIREME_RULES
// Rules, their numbers of arrays, their scalars.
#define TRIREME_RULES(of)                                                                          \
  of(adamw, 4, AdamWScalars) of(amsgrad, 5, AdamWScalars) of(adamod, 5, AdaModScalars)             \
      of(sgd, 3, SgdScalars) of(lion, 3, LionScalars) of(rmsprop, 5, RmspropScalars)               \
          of(adagrad, 3, AdagradScalars) of(lars, 3, LarsScalars) of(lamb_moments, 3, LambScalars) \
              of(lamb_direction, 4, LambScalars) of(subtract, 2, double)
#endif

HWY_BEFORE_NAMESPACE();
namespace trireme::rule_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The arrays of a rule, by number; a null one is not used.
template <class T, size_t kRows>
using Rows = std::array<T*, kRows>;

// rule(rows, i) computes the vector that begins at element i. The last elements go through whole
// vectors on the stack: the same operations, and no byte beyond the range is touched. Row r is
// written where bit r of kWrites is set. Rows are a copy: vectors may alias anything, also what a
// reference refers to.
template <unsigned kWrites, class T, size_t kRows, class Rule>
HWY_INLINE void run(Rows<T, kRows> rows, size_t n, const Rule& rule) {
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

template <class T, bool kL2, bool kAmsgrad>
struct AdamW : Lane<T> {  // rows: p, g, m, v, amsgrad's largest v
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE AdamW(const AdamWScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        l2(L::set(s.l2)),
        keep(L::set(s.keep)),
        beta1(L::set(s.beta1)),
        beta2(L::set(s.beta2)),
        rest1(L::set(1 - s.beta1)),
        rest2(L::set(1 - s.beta2)),
        eps(L::set(s.eps)),
        step_size(L::set(s.step_size)),
        root_scale(L::set(s.root_scale)) {}
  HWY_INLINE void operator()(const Rows<T, kAmsgrad ? 5 : 4>& r, size_t i) const {
    const V p = L::load(r[0] + i);
    V grad = hn::Mul(L::load(r[1] + i), grad_scale);
    if (kL2) grad = hn::Add(grad, hn::Mul(l2, p));
    const V m = hn::Add(hn::Mul(L::load(r[2] + i), beta1), hn::Mul(rest1, grad));
    const V v = hn::Add(hn::Mul(L::load(r[3] + i), beta2), hn::Mul(hn::Mul(rest2, grad), grad));
    V divisor = v;
    if constexpr (kAmsgrad) {
      divisor = hn::Max(L::load(r[4] + i), v);
      L::store(divisor, r[4] + i);
    }
    const V root = hn::Add(hn::Mul(hn::Sqrt(divisor), root_scale), eps);
    L::store(m, r[2] + i);
    L::store(v, r[3] + i);
    L::store(hn::Sub(hn::Mul(p, keep), hn::Mul(step_size, hn::Div(m, root))), r[0] + i);
  }
  V grad_scale, l2, keep, beta1, beta2, rest1, rest2, eps, step_size, root_scale;
};

template <class T>
struct AdaMod : Lane<T> {  // rows: p, g, m, v, mean
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE AdaMod(const AdaModScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        keep(L::set(s.keep)),
        beta1(L::set(s.beta1)),
        beta2(L::set(s.beta2)),
        beta3(L::set(s.beta3)),
        rest1(L::set(1 - s.beta1)),
        rest2(L::set(1 - s.beta2)),
        rest3(L::set(1 - s.beta3)),
        eps(L::set(s.eps)),
        step_size(L::set(s.step_size)) {}
  HWY_INLINE void operator()(const Rows<T, 5>& r, size_t i) const {
    const V grad = hn::Mul(L::load(r[1] + i), grad_scale);
    const V m = hn::Add(hn::Mul(L::load(r[2] + i), beta1), hn::Mul(rest1, grad));
    const V v = hn::Add(hn::Mul(L::load(r[3] + i), beta2), hn::Mul(hn::Mul(rest2, grad), grad));
    // A reciprocal and a product, as there is no list of quotients of one number.
    const V root = hn::Add(hn::Sqrt(v), eps);
    const V rate = hn::Mul(hn::Div(L::set(1), root), step_size);
    const V mean = hn::Add(hn::Mul(L::load(r[4] + i), beta3), hn::Mul(rest3, rate));
    L::store(m, r[2] + i);
    L::store(v, r[3] + i);
    L::store(mean, r[4] + i);
    const V step = hn::Mul(hn::Min(rate, mean), m);
    L::store(hn::Sub(hn::Mul(L::load(r[0] + i), keep), step), r[0] + i);
  }
  V grad_scale, keep, beta1, beta2, beta3, rest1, rest2, rest3, eps, step_size;
};

template <class T, bool kDecay, bool kMomentum, bool kNesterov>
struct Sgd : Lane<T> {  // rows: p, g, m
  using typename Lane<T>::V;
  using L = Lane<T>;
  explicit HWY_INLINE Sgd(const SgdScalars& s)
      : grad_scale(L::set(s.grad_scale)),
        lr(L::set(s.lr)),
        decay(L::set(s.weight_decay)),
        momentum(L::set(s.momentum)),
        gain(L::set(s.gain)) {}
  HWY_INLINE void operator()(const Rows<T, 3>& r, size_t i) const {
    const V p = L::load(r[0] + i);
    V grad = hn::Mul(L::load(r[1] + i), grad_scale);
    if (kDecay) grad = hn::Add(grad, hn::Mul(decay, p));
    if (kMomentum) {
      const V m = hn::Add(hn::Mul(L::load(r[2] + i), momentum), hn::Mul(gain, grad));
      L::store(m, r[2] + i);
      grad = kNesterov ? hn::Add(grad, hn::Mul(momentum, m)) : m;
    }
    L::store(hn::Sub(p, hn::Mul(lr, grad)), r[0] + i);
  }
  V grad_scale, lr, decay, momentum, gain;
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

// Which of a rule's variants the scalars ask for.
template <class T>
HWY_INLINE void adamw(const Rows<T, 4>& rows, size_t n, const AdamWScalars& s) {
  s.l2 != 0 ? run<0b1101>(rows, n, AdamW<T, true, false>(s))
            : run<0b1101>(rows, n, AdamW<T, false, false>(s));
}

template <class T>
HWY_INLINE void amsgrad(const Rows<T, 5>& rows, size_t n, const AdamWScalars& s) {
  s.l2 != 0 ? run<0b11101>(rows, n, AdamW<T, true, true>(s))
            : run<0b11101>(rows, n, AdamW<T, false, true>(s));
}

template <class T>
HWY_INLINE void adamod(const Rows<T, 5>& rows, size_t n, const AdaModScalars& s) {
  run<0b11101>(rows, n, AdaMod<T>(s));
}

template <class T, bool kDecay>
HWY_INLINE void sgd(const Rows<T, 3>& rows, size_t n, const SgdScalars& s) {
  if (s.momentum == 0)
    run<0b001>(rows, n, Sgd<T, kDecay, false, false>(s));
  else
    s.nesterov ? run<0b101>(rows, n, Sgd<T, kDecay, true, true>(s))
               : run<0b101>(rows, n, Sgd<T, kDecay, true, false>(s));
}

template <class T>
HWY_INLINE void sgd(const Rows<T, 3>& rows, size_t n, const SgdScalars& s) {
  s.weight_decay != 0 ? sgd<T, true>(rows, n, s) : sgd<T, false>(rows, n, s);
}

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

template <class T>
HWY_INLINE void lamb_moments(const Rows<T, 3>& rows, size_t n, const LambScalars& s) {
  run<0b110>(rows, n, LambMoments<T>(s));
}

template <class T>
HWY_INLINE void lamb_direction(const Rows<T, 4>& rows, size_t n, const LambScalars& s) {
  run<0b1000>(rows, n, LambDirection<T>(s));
}

template <class T>
HWY_INLINE void subtract(const Rows<T, 2>& rows, size_t n, double step) {
  run<0b01>(rows, n, Subtract<T>(step));
}

// Highway's tables hold functions, not templates or overloads: a name for each type.
#define TRIREME_COMPILE(rule, kRows, Scalars)                                                   \
  void rule##_float(const Rows<float, kRows>& r, size_t n, const Scalars& s) { rule(r, n, s); } \
  void rule##_double(const Rows<double, kRows>& r, size_t n, const Scalars& s) { rule(r, n, s); }
TRIREME_RULES(TRIREME_COMPILE)
#undef TRIREME_COMPILE

}  // namespace HWY_NAMESPACE
}  // namespace trireme::rule_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme {
namespace rule_kernels {

// rule(rows, n, scalars) for both types, by the best target of this machine.
#define TRIREME_DISPATCH(rule, kRows, Scalars)                                            \
  HWY_EXPORT(rule##_float);                                                               \
  HWY_EXPORT(rule##_double);                                                              \
  static void rule(const std::array<float*, kRows>& rows, int64_t n, const Scalars& s) {  \
    HWY_DYNAMIC_DISPATCH(rule##_float)(rows, static_cast<size_t>(n), s);                  \
  }                                                                                       \
  static void rule(const std::array<double*, kRows>& rows, int64_t n, const Scalars& s) { \
    HWY_DYNAMIC_DISPATCH(rule##_double)(rows, static_cast<size_t>(n), s);                 \
  }
TRIREME_RULES(TRIREME_DISPATCH)
#undef TRIREME_DISPATCH

}  // namespace rule_kernels

namespace {

// Rows are one type; const ones are never written (kWrites).
template <class T>
T* row(const T* x) {
  return const_cast<T*>(x);
}

// block(begin, count) over [0, n) in the blocks in which norms are added.
template <class Block>
void for_blocks(int64_t n, const Block& block) {
  for (int64_t i = 0; i < n; i += kNormBlock) block(i, std::min(kNormBlock, n - i));
}

template <class T>
void lamb_direction(const T* p, const T* m, const T* v, T* u, int64_t n, const LambScalars& s) {
  rule_kernels::lamb_direction({row(p), row(m), row(v), u}, n, s);
}

}  // namespace

template <class T>
void adamw_pass(T* p, const T* g, T* m, T* v, int64_t n, const AdamWScalars& s) {
  rule_kernels::adamw({p, row(g), m, v}, n, s);
}

template <class T>
void amsgrad_pass(T* p, const T* g, T* m, T* v, T* most, int64_t n, const AdamWScalars& s) {
  rule_kernels::amsgrad({p, row(g), m, v, most}, n, s);
}

template <class T>
void adamod_pass(T* p, const T* g, T* m, T* v, T* mean, int64_t n, const AdaModScalars& s) {
  rule_kernels::adamod({p, row(g), m, v, mean}, n, s);
}

template <class T>
void sgd_pass(T* p, const T* g, T* m, int64_t n, const SgdScalars& s) {
  rule_kernels::sgd({p, row(g), m}, n, s);
}

template <class T>
void lion_pass(T* p, const T* g, T* m, int64_t n, const LionScalars& s) {
  rule_kernels::lion({p, row(g), m}, n, s);
}

template <class T>
void rmsprop_pass(T* p, const T* g, T* v, T* mean, T* buffer, int64_t n, const RmspropScalars& s) {
  rule_kernels::rmsprop({p, row(g), v, mean, buffer}, n, s);
}

template <class T>
void adagrad_pass(T* p, const T* g, T* sum, int64_t n, const AdagradScalars& s) {
  rule_kernels::adagrad({p, row(g), sum}, n, s);
}

template <class T>
void lars_pass(T* p, const T* g, T* buffer, int64_t n, const LarsScalars& s) {
  rule_kernels::lars({p, row(g), buffer}, n, s);
}

template <class T>
void lamb_moments(const T* g, T* m, T* v, int64_t n, const LambScalars& s) {
  rule_kernels::lamb_moments({row(g), m, v}, n, s);
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
    rule_kernels::subtract({p + i, u}, count, step);
  });
}

#define TRIREME_INSTANTIATE(T)                                                              \
  template void adamw_pass(T*, const T*, T*, T*, int64_t, const AdamWScalars&);             \
  template void amsgrad_pass(T*, const T*, T*, T*, T*, int64_t, const AdamWScalars&);       \
  template void adamod_pass(T*, const T*, T*, T*, T*, int64_t, const AdaModScalars&);       \
  template void sgd_pass(T*, const T*, T*, int64_t, const SgdScalars&);                     \
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
