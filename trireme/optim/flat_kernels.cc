// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/flat_kernels.h"

#include <cmath>
#include <cstring>

// Vectors are members of the passes below, which targets with sizeless vectors cannot have.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/flat_kernels.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::flat_kernels {  // names of per-target code must not meet another file's
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V broadcast(double x) { return hn::Set(D(), static_cast<float>(x)); }

template <bool kL2>
struct AdamWVector {
  explicit HWY_INLINE AdamWVector(const AdamWScalars& s)
      : grad_scale(broadcast(s.grad_scale)),
        l2(broadcast(s.l2)),
        keep(broadcast(s.keep)),
        beta1(broadcast(s.beta1)),
        beta2(broadcast(s.beta2)),
        rest1(broadcast(1 - s.beta1)),
        rest2(broadcast(1 - s.beta2)),
        eps(broadcast(s.eps)),
        step_size(broadcast(s.step_size)),
        root_scale(broadcast(s.root_scale)) {}

  HWY_INLINE void operator()(float* p, const float* g, float* m, float* v) const {
    const D d;
    V param = hn::LoadU(d, p);
    V grad = hn::Mul(hn::LoadU(d, g), grad_scale);
    if (kL2) grad = hn::Add(grad, hn::Mul(l2, param));
    const V m1 = hn::Add(hn::Mul(hn::LoadU(d, m), beta1), hn::Mul(rest1, grad));
    const V v1 = hn::Add(hn::Mul(hn::LoadU(d, v), beta2), hn::Mul(hn::Mul(rest2, grad), grad));
    const V root = hn::Add(hn::Mul(hn::Sqrt(v1), root_scale), eps);
    param = hn::Sub(hn::Mul(param, keep), hn::Mul(step_size, hn::Div(m1, root)));
    hn::StoreU(m1, d, m);
    hn::StoreU(v1, d, v);
    hn::StoreU(param, d, p);
  }

  V grad_scale, l2, keep, beta1, beta2, rest1, rest2, eps, step_size, root_scale;
};

template <bool kDecay, bool kMomentum, bool kNesterov>
struct SgdVector {
  explicit HWY_INLINE SgdVector(const SgdScalars& s)
      : grad_scale(broadcast(s.grad_scale)),
        lr(broadcast(s.lr)),
        decay(broadcast(s.weight_decay)),
        momentum(broadcast(s.momentum)) {}

  HWY_INLINE void operator()(float* p, const float* g, float* m) const {
    const D d;
    const V param = hn::LoadU(d, p);
    V grad = hn::Mul(hn::LoadU(d, g), grad_scale);
    if (kDecay) grad = hn::Add(grad, hn::Mul(decay, param));
    if (kMomentum) {
      const V m1 = hn::Add(hn::Mul(hn::LoadU(d, m), momentum), grad);
      hn::StoreU(m1, d, m);
      grad = kNesterov ? hn::Add(grad, hn::Mul(momentum, m1)) : m1;
    }
    hn::StoreU(hn::Sub(param, hn::Mul(lr, grad)), d, p);
  }

  V grad_scale, lr, decay, momentum;
};

// The last elements go through a whole vector on the stack: the same operations, and no byte beyond
// the range is touched.
template <class Pass>
HWY_INLINE void run_adamw(float* p, const float* g, float* m, float* v, size_t n,
                          const Pass& pass) {
  const size_t lanes = hn::Lanes(D());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) pass(p + i, g + i, m + i, v + i);
  if (const size_t bytes = (n - i) * sizeof(float)) {
    HWY_ALIGN float tail[4][hn::MaxLanes(D())] = {};
    std::memcpy(tail[0], p + i, bytes);
    std::memcpy(tail[1], g + i, bytes);
    std::memcpy(tail[2], m + i, bytes);
    std::memcpy(tail[3], v + i, bytes);
    pass(tail[0], tail[1], tail[2], tail[3]);
    std::memcpy(p + i, tail[0], bytes);
    std::memcpy(m + i, tail[2], bytes);
    std::memcpy(v + i, tail[3], bytes);
  }
}

template <bool kMomentum, class Pass>
HWY_INLINE void run_sgd(float* p, const float* g, float* m, size_t n, const Pass& pass) {
  const size_t lanes = hn::Lanes(D());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) pass(p + i, g + i, kMomentum ? m + i : nullptr);
  if (const size_t bytes = (n - i) * sizeof(float)) {
    HWY_ALIGN float tail[3][hn::MaxLanes(D())] = {};
    std::memcpy(tail[0], p + i, bytes);
    std::memcpy(tail[1], g + i, bytes);
    if (kMomentum) std::memcpy(tail[2], m + i, bytes);
    pass(tail[0], tail[1], tail[2]);
    std::memcpy(p + i, tail[0], bytes);
    if (kMomentum) std::memcpy(m + i, tail[2], bytes);
  }
}

void AdamWFloat(float* p, const float* g, float* m, float* v, size_t n, const AdamWScalars& s) {
  if (s.l2 != 0)
    run_adamw(p, g, m, v, n, AdamWVector<true>(s));
  else
    run_adamw(p, g, m, v, n, AdamWVector<false>(s));
}

void SgdFloat(float* p, const float* g, float* m, size_t n, const SgdScalars& s) {
  const bool decay = s.weight_decay != 0;
  if (s.momentum == 0)
    return decay ? run_sgd<false>(p, g, m, n, SgdVector<true, false, false>(s))
                 : run_sgd<false>(p, g, m, n, SgdVector<false, false, false>(s));
  if (s.nesterov)
    return decay ? run_sgd<true>(p, g, m, n, SgdVector<true, true, true>(s))
                 : run_sgd<true>(p, g, m, n, SgdVector<false, true, true>(s));
  return decay ? run_sgd<true>(p, g, m, n, SgdVector<true, true, false>(s))
               : run_sgd<true>(p, g, m, n, SgdVector<false, true, false>(s));
}

}  // namespace HWY_NAMESPACE
}  // namespace trireme::flat_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::flat_kernels {
HWY_EXPORT(AdamWFloat);
HWY_EXPORT(SgdFloat);
}  // namespace trireme::flat_kernels

namespace trireme {

using namespace flat_kernels;  // NOLINT: the dispatch tables

void adamw_pass(float* p, const float* g, float* m, float* v, int64_t n, const AdamWScalars& s) {
  HWY_DYNAMIC_DISPATCH(AdamWFloat)(p, g, m, v, static_cast<size_t>(n), s);
}

void adamw_pass(double* p, const double* g, double* m, double* v, int64_t n,
                const AdamWScalars& s) {
  for (int64_t i = 0; i < n; ++i) {
    double grad = g[i] * s.grad_scale;
    if (s.l2 != 0) grad = grad + s.l2 * p[i];
    m[i] = m[i] * s.beta1 + (1 - s.beta1) * grad;
    v[i] = v[i] * s.beta2 + ((1 - s.beta2) * grad) * grad;
    p[i] = p[i] * s.keep - s.step_size * (m[i] / (std::sqrt(v[i]) * s.root_scale + s.eps));
  }
}

void sgd_pass(float* p, const float* g, float* m, int64_t n, const SgdScalars& s) {
  HWY_DYNAMIC_DISPATCH(SgdFloat)(p, g, m, static_cast<size_t>(n), s);
}

void sgd_pass(double* p, const double* g, double* m, int64_t n, const SgdScalars& s) {
  for (int64_t i = 0; i < n; ++i) {
    double grad = g[i] * s.grad_scale;
    if (s.weight_decay != 0) grad = grad + s.weight_decay * p[i];
    if (s.momentum != 0) {
      m[i] = m[i] * s.momentum + grad;
      grad = s.nesterov ? grad + s.momentum * m[i] : m[i];
    }
    p[i] = p[i] - s.lr * grad;
  }
}

}  // namespace trireme
#endif  // HWY_ONCE
