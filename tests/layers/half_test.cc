// SPDX-License-Identifier: Apache-2.0
// Every layer in bfloat16, and under autocast: forward and gradients within the type's rounding of
// float32 (2^-9 of each number; some of the sums cancel).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "trireme/layers/bias_gelu.h"
#include "trireme/layers/causal_attention.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/half_products.h"
#include "trireme/layers/plain.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/random/random.h"

namespace half_test {

using namespace trireme;

namespace {

at::Tensor values(at::IntArrayRef sizes, double phase) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return at::arange(n, at::kDouble).mul(0.61).add(phase).sin().to(at::kFloat).reshape(sizes);
}

using Layer = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

struct Case {
  const char* name;
  std::vector<at::Tensor> inputs;  // float32; those of integers stay
  Layer layer;
};

std::vector<Case> cases() {
  return {
      {"linear",
       {values({6, 8}, 0), values({5, 8}, 1), values({5}, 2)},
       [](const auto& t) {
         Linear l(8, 5);
         l.weight = t[1], l.bias = t[2];
         return l.forward(t[0]);
       }},
      {"layer_norm",
       {values({6, 8}, 0), values({8}, 1), values({8}, 2)},
       [](const auto& t) {
         LayerNorm l(8);
         l.weight = t[1], l.bias = t[2];
         return l.forward(t[0]);
       }},
      {"embedding",
       {values({7, 4}, 0)},
       [](const auto& t) {
         Embedding l(7, 4);
         l.weight = t[0];
         return l.forward(at::arange(12, at::kLong).remainder(7).reshape({3, 4}));
       }},
      {"conv2d",
       {values({2, 1, 9, 9}, 0), values({3, 1, 5, 5}, 1), values({3}, 2)},
       [](const auto& t) {
         Conv2d l(1, 3, 5);
         l.weight = t[1], l.bias = t[2];
         return l.forward(t[0]);
       }},
      {"bias_gelu",
       {values({4, 3, 8}, 0), values({8}, 1)},
       [](const auto& t) { return bias_gelu(t[0], t[1]); }},
      // Several pieces of rows, and rows that are wider than a piece.
      {"bias_gelu of many rows",
       {values({700, 37}, 0), values({37}, 1)},
       [](const auto& t) { return bias_gelu(t[0], t[1]); }},
      {"bias_gelu of wide rows",
       {values({3, 5003}, 0), values({5003}, 1)},
       [](const auto& t) { return bias_gelu(t[0], t[1]); }},
      {"attention over tiles",
       {values({2, 131, 24}, 0)},
       [](const auto& t) { return causal_attention(t[0], 2); }},
      {"attention",
       {values({2, 5, 24}, 0)},
       [](const auto& t) { return causal_attention(t[0], 2); }},
      {"dropout",
       {values({4, 16}, 0)},
       [](const auto& t) {
         RandomScope scope({1, 2, {10, 11, 12, 13}});
         return keyed_dropout(t[0], 0.25, "drop");
       }},
  };
}

struct Results {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

Results run(const Case& c, at::ScalarType type, bool autocast) {
  std::vector<at::Tensor> inputs;
  for (const auto& t : c.inputs) inputs.push_back(t.to(type).detach().clone().requires_grad_());
  Results r;
  {
    std::optional<AutocastGuard> guard;
    if (autocast) guard.emplace(at::kCPU, at::kBFloat16);
    r.output = c.layer(inputs);
  }
  r.output.backward(values(r.output.sizes(), 3).to(r.output.scalar_type()));
  for (const auto& t : inputs) {
    EXPECT_EQ(t.grad().scalar_type(), type) << c.name;
    r.gradients.push_back(t.grad());
  }
  return r;
}

/// LibTorch's own products (convolutions, and all under autocast) may round each partial sum.
double rounding() {
  static const bool float32_sums = measure_product_rates(384, 0).float32_sums;
  return float32_sums ? 0.01 : 0.03;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x - y).norm().item<double>() / y.norm().item<double>();
}

}  // namespace

TEST(layers_half, bfloat16_is_float32_within_its_rounding_forward_and_backward) {
  for (const Case& c : cases()) {
    const Results wide = run(c, at::kFloat, false), half = run(c, at::kBFloat16, false);
    EXPECT_EQ(half.output.scalar_type(), at::kBFloat16) << c.name;
    EXPECT_LT(distance(half.output, wide.output), rounding()) << c.name;
    for (size_t i = 0; i < wide.gradients.size(); ++i)
      EXPECT_LT(distance(half.gradients[i], wide.gradients[i]), 3 * rounding())
          << c.name << " " << i;
  }
}

TEST(layers_half, autocast_keeps_float32_gradients_within_the_rounding) {
  for (const Case& c : cases()) {
    const Results wide = run(c, at::kFloat, false), half = run(c, at::kFloat, true);
    EXPECT_LT(distance(half.output, wide.output), rounding()) << c.name;
    for (size_t i = 0; i < wide.gradients.size(); ++i)
      EXPECT_LT(distance(half.gradients[i], wide.gradients[i]), 3 * rounding())
          << c.name << " " << i;
  }
}

}  // namespace half_test
