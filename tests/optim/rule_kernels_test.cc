// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rules/rule_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <vector>

namespace rule_kernels_test {

using namespace trireme;

namespace {

// The pass written as a plain loop: the definition that every SIMD target must meet to the bit.
template <class T>
void plain_adamw(T* p, const T* g, T* m, T* v, size_t n, const AdamWScalars& s, T* most = nullptr) {
  auto f = [](double x) { return static_cast<T>(x); };
  for (size_t i = 0; i < n; ++i) {
    T grad = g[i] * f(s.grad_scale);
    if (s.l2 != 0) grad = grad + f(s.l2) * p[i];
    m[i] = m[i] * f(s.beta1) + f(1 - s.beta1) * grad;
    v[i] = v[i] * f(s.beta2) + (f(1 - s.beta2) * grad) * grad;
    if (most) most[i] = std::max(most[i], v[i]);
    const T root = std::sqrt(most ? most[i] : v[i]);
    p[i] = p[i] * f(s.keep) - f(s.step_size) * (m[i] / (root * f(s.root_scale) + f(s.eps)));
  }
}

template <class T>
void plain_sgd(T* p, const T* g, T* m, size_t n, const SgdScalars& s) {
  auto f = [](double x) { return static_cast<T>(x); };
  for (size_t i = 0; i < n; ++i) {
    T grad = g[i] * f(s.grad_scale);
    if (s.weight_decay != 0) grad = grad + f(s.weight_decay) * p[i];
    if (s.momentum != 0) {
      m[i] = m[i] * f(s.momentum) + f(s.gain) * grad;
      grad = s.nesterov ? grad + f(s.momentum) * m[i] : m[i];
    }
    p[i] = p[i] - f(s.lr) * grad;
  }
}

template <class T>
struct BuffersOf {
  explicit BuffersOf(size_t n, uint32_t seed) : p(n), g(n), m(n), v(n) {
    std::mt19937 random(seed);
    std::normal_distribution<T> normal;
    for (size_t i = 0; i < n; ++i) {
      p[i] = normal(random), g[i] = normal(random), m[i] = normal(random);
      v[i] = std::abs(normal(random));
    }
  }
  std::vector<T> p, g, m, v;
};
using Buffers = BuffersOf<float>;

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Runs body once with each SIMD target of this machine chosen.
template <class Body>
void for_each_target(const Body& body) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

const AdamWScalars kAdamW{0.125, 0, 1 - 1e-3 * 0.1, 0.9, 0.95, 1e-8, 1e-3, 1.7};
const AdamWScalars kAdam{1, 0.1, 1, 0.9, 0.999, 1e-8, 1e-3, 3.1};

}  // namespace

TEST(optim_rule_kernels, adamw_has_the_bits_of_the_plain_loop_on_every_target_and_length) {
  for_each_target([] {
    for (const auto& scalars : {kAdamW, kAdam})
      for (size_t n : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100}) {
        Buffers buffers(n, 1), want(n, 1);
        adamw_pass(buffers.p.data(), buffers.g.data(), buffers.m.data(), buffers.v.data(),
                   static_cast<int64_t>(n), scalars);
        plain_adamw(want.p.data(), want.g.data(), want.m.data(), want.v.data(), n, scalars);
        EXPECT_TRUE(same_bits(buffers.p, want.p) && same_bits(buffers.m, want.m) &&
                    same_bits(buffers.v, want.v))
            << n;
      }
  });
}

TEST(optim_rule_kernels, amsgrad_has_the_bits_of_the_plain_loop_on_every_target_and_length) {
  for_each_target([] {
    for (const auto& scalars : {kAdamW, kAdam})
      for (size_t n : {0, 1, 7, 16, 33, 100}) {
        Buffers buffers(n, 1), want(n, 1), most(n, 2), want_most(n, 2);
        amsgrad_pass(buffers.p.data(), buffers.g.data(), buffers.m.data(), buffers.v.data(),
                     most.v.data(), static_cast<int64_t>(n), scalars);
        plain_adamw(want.p.data(), want.g.data(), want.m.data(), want.v.data(), n, scalars,
                    want_most.v.data());
        EXPECT_TRUE(same_bits(buffers.p, want.p) && same_bits(buffers.m, want.m) &&
                    same_bits(buffers.v, want.v) && same_bits(most.v, want_most.v))
            << n;
      }
  });
}

TEST(optim_rule_kernels, sgd_has_the_bits_of_the_plain_loop_on_every_target_and_length) {
  for_each_target([] {
    for (const SgdScalars& scalars :
         {SgdScalars{0.5, 0.1, 0, 0, false}, SgdScalars{1, 0.1, 0.01, 0, false},
          SgdScalars{1, 0.1, 0, 0.9, false}, SgdScalars{1, 0.1, 0.01, 0.9, false},
          SgdScalars{1, 0.1, 0, 0.9, true}, SgdScalars{2, 0.1, 0.01, 0.9, true},
          SgdScalars{1, 0.1, 0.01, 0.9, false, 0.3}})
      for (size_t n : {0, 1, 5, 16, 19, 63}) {
        Buffers buffers(n, 2), want(n, 2);
        float* m = scalars.momentum == 0 ? nullptr : buffers.m.data();
        sgd_pass(buffers.p.data(), buffers.g.data(), m, static_cast<int64_t>(n), scalars);
        plain_sgd(want.p.data(), want.g.data(), want.m.data(), n, scalars);
        EXPECT_TRUE(same_bits(buffers.p, want.p) && same_bits(buffers.m, want.m)) << n;
      }
  });
}

TEST(optim_rule_kernels, float64_has_the_bits_of_the_plain_loop_too) {
  for_each_target([] {
    for (size_t n : {1, 4, 7, 16, 33}) {
      BuffersOf<double> buffers(n, 6), want(n, 6);
      for (const auto& scalars : {kAdamW, kAdam}) {
        adamw_pass(buffers.p.data(), buffers.g.data(), buffers.m.data(), buffers.v.data(),
                   static_cast<int64_t>(n), scalars);
        plain_adamw(want.p.data(), want.g.data(), want.m.data(), want.v.data(), n, scalars);
      }
      const SgdScalars sgd{2, 0.1, 0.01, 0.9, true};
      sgd_pass(buffers.p.data(), buffers.g.data(), buffers.m.data(), static_cast<int64_t>(n), sgd);
      plain_sgd(want.p.data(), want.g.data(), want.m.data(), n, sgd);
      EXPECT_TRUE(same_bits(buffers.p, want.p) && same_bits(buffers.m, want.m) &&
                  same_bits(buffers.v, want.v))
          << n;
    }
  });
}

TEST(optim_rule_kernels, splitting_a_range_anywhere_changes_no_bit) {
  const size_t n = 101;
  Buffers whole(n, 3);
  adamw_pass(whole.p.data(), whole.g.data(), whole.m.data(), whole.v.data(), n, kAdamW);
  for (size_t cut = 0; cut <= n; cut += 7) {
    Buffers parts(n, 3);
    adamw_pass(parts.p.data(), parts.g.data(), parts.m.data(), parts.v.data(),
               static_cast<int64_t>(cut), kAdamW);
    adamw_pass(parts.p.data() + cut, parts.g.data() + cut, parts.m.data() + cut,
               parts.v.data() + cut, static_cast<int64_t>(n - cut), kAdamW);
    EXPECT_TRUE(same_bits(parts.p, whole.p) && same_bits(parts.v, whole.v)) << cut;
  }
}

TEST(optim_rule_kernels, nothing_beyond_the_range_is_written) {
  Buffers buffers(40, 4), before(40, 4);
  adamw_pass(buffers.p.data() + 1, buffers.g.data() + 1, buffers.m.data() + 1, buffers.v.data() + 1,
             21, kAdamW);
  sgd_pass(buffers.p.data() + 30, buffers.g.data() + 30, buffers.m.data() + 30, 3,
           SgdScalars{1, 0.1, 0, 0.9, false});
  for (size_t i : {0, 22, 29, 33, 39}) {
    EXPECT_EQ(buffers.p[i], before.p[i]) << i;
    EXPECT_EQ(buffers.m[i], before.m[i]) << i;
    EXPECT_EQ(buffers.v[i], before.v[i]) << i;
  }
}

TEST(optim_rule_kernels, a_tail_never_makes_a_nan_of_its_padding) {
  AdamWScalars scalars = kAdamW;
  scalars.eps = 0;  // padding computes 0/0; it must not be seen
  Buffers buffers(3, 5);
  adamw_pass(buffers.p.data(), buffers.g.data(), buffers.m.data(), buffers.v.data(), 3, scalars);
  for (float x : buffers.p) EXPECT_TRUE(std::isfinite(x));
}

// Every cut of the range, and so every alignment and tail.
TEST(optim_rule_kernels, neither_cuts_nor_simd_targets_change_a_bit) {
  constexpr int64_t n = 67;
  torch::manual_seed(3);
  auto p = torch::randn({n}), g = torch::randn({n}), v = torch::rand({n}) + 1,
       m = torch::randn({n});
  auto b = torch::randn({n});
  using Pass = std::function<void(float*, const float*, float*, float*, float*, int64_t)>;
  const LambScalars lamb{0.5, 0.9, 0.99, 1e-8, 0.1, 1.5, 1.25};
  const std::map<std::string, Pass> passes = {
      {"adamod",
       [](auto* p, auto* g, auto* v, auto* m, auto* b, int64_t n) {
         adamod_pass<float>(p, g, m, v, b, n, {0.5, 0.99, 0.9, 0.99, 0.9, 1e-8, 0.01});
       }},
      {"lion",
       [](auto* p, auto* g, auto*, auto* m, auto*, int64_t n) {
         lion_pass<float>(p, g, m, n, {0.5, 0.99, 0.9, 0.99, 0.01});
       }},
      {"rmsprop",
       [](auto* p, auto* g, auto* v, auto* m, auto* b, int64_t n) {
         rmsprop_pass<float>(p, g, v, m, b, n, {0.5, 0.1, 0.9, 1e-8, 0.9, true, 0.01});
       }},
      {"adagrad",
       [](auto* p, auto* g, auto* v, auto*, auto*, int64_t n) {
         adagrad_pass<float>(p, g, v, n, {0.5, 0.1, 1e-10, 0.01});
       }},
      {"lars",
       [](auto* p, auto* g, auto*, auto*, auto* b, int64_t n) {
         lars_pass<float>(p, g, b, n, {0.5, 0.1, 0.9, 0.01});
       }},
      {"lamb", [&](auto* p, auto* g, auto* v, auto* m, auto*, int64_t n) {
         lamb_moments<float>(g, m, v, n, lamb);
         lamb_update<float>(p, m, v, n, lamb, 0.01);
       }}};
  for (const auto& [name, pass] : passes) {
    at::Tensor first;
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      auto whole = torch::stack({p, g, v, m, b});
      float* w = whole.data_ptr<float>();
      pass(w, w + n, w + 2 * n, w + 3 * n, w + 4 * n, n);
      EXPECT_TRUE(whole[1].equal(g)) << "gradients are read only";
      EXPECT_FALSE(whole[0].equal(p));
      if (!first.defined()) first = whole;
      EXPECT_TRUE(whole.equal(first)) << name << ' ' << hwy::TargetName(target);
      for (int64_t cut = 0; cut <= n; ++cut) {
        auto parts = torch::stack({p, g, v, m, b});
        float* q = parts.data_ptr<float>();
        pass(q, q + n, q + 2 * n, q + 3 * n, q + 4 * n, cut);
        pass(q + cut, q + n + cut, q + 2 * n + cut, q + 3 * n + cut, q + 4 * n + cut, n - cut);
        ASSERT_TRUE(whole.equal(parts)) << name << ' ' << cut << ' ' << hwy::TargetName(target);
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace rule_kernels_test
