// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/half_products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/layers/half_layer_norm.h"
#include "trireme/layers/plain.h"
#include "trireme/models/gpt.h"

namespace half_products_test {

using namespace trireme;

namespace {

at::Tensor half(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }

/// Whether every number of `got` (bfloat16) is the rounding of one within 2^-8 of `exact`'s.
void expect_rounded(const at::Tensor& got, const at::Tensor& exact, double of_largest = 0) {
  ASSERT_EQ(got.scalar_type(), at::kBFloat16);
  const at::Tensor room =
      exact.abs().mul(1.0 / 256).add(of_largest * exact.abs().max().item<double>());
  EXPECT_TRUE(got.to(at::kDouble).sub(exact).abs().le(room).all().item<bool>())
      << got.to(at::kDouble).sub(exact).abs().max().item<double>();
}

struct Gradients {
  at::Tensor y, dx, dw, db;
};

template <class Layer>
Gradients run(const Layer& layer, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
              const at::Tensor& dy) {
  const at::Tensor x1 = x.detach().clone().requires_grad_(),
                   w1 = w.detach().clone().requires_grad_(),
                   b1 = b.detach().clone().requires_grad_();
  const at::Tensor y = layer(x1, w1, b1);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), x1.grad(), w1.grad(), b1.grad()};
}

struct Direct : MultipliesHalf {
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) const {
    return linear_rows(x, w, b);
  }
};

}  // namespace

TEST(layers_half_products, both_ways_are_the_rounded_float64_product) {
  at::manual_seed(1);
  for (HalfProducts way : {HalfProducts::native, HalfProducts::widened})
    for (const auto& [rows, in, out] :
         {std::array<int64_t, 3>{1, 1, 1}, {7, 33, 5}, {64, 192, 96}}) {
      const at::Tensor x = half({rows, in}), w = half({out, in}), b = half({out}),
                       dy = half({rows, out});
      Direct layer;
      layer.set_half_products(way);
      const Gradients got = run(layer, x, w, b, dy);
      const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
      const Gradients exact = run([](auto& a, auto& c, auto& d) { return at::linear(a, c, d); },
                                  wide(x), wide(w), wide(b), wide(dy));
      // Sums of many terms that cancel are rounded beside the largest of them; LibTorch adds small
      // products up in bfloat16 (without AVX-512 all), and rounds a product before it adds the
      // bias.
      static const bool float32_sums = measure_product_rates(384, 0).float32_sums;
      const double native = float32_sums ? 1.0 / 64 : 1.0 / 16;
      const double room = way == HalfProducts::native ? native : 1e-6;
      expect_rounded(got.y, exact.y, room);
      expect_rounded(got.dx, exact.dx, room);
      expect_rounded(got.dw, exact.dw, room);
      if (way == HalfProducts::widened) expect_rounded(got.db, exact.db, 1e-6);
    }
}

TEST(layers_half_products, three_dimensions_and_no_bias_are_taken) {
  Direct layer;
  layer.set_half_products(HalfProducts::widened);
  const at::Tensor x = half({2, 3, 8}).requires_grad_(), w = half({4, 8}).requires_grad_();
  const at::Tensor y = layer(x, w, at::Tensor());
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 3, 4}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  expect_rounded(y.detach(), at::linear(x.to(at::kDouble), w.to(at::kDouble)).detach(), 1e-6);
}

TEST(layers_half_products, float32_is_not_touched_by_the_choice) {
  Direct native, widened;
  widened.set_half_products(HalfProducts::widened);
  const at::Tensor x = at::randn({5, 16}), w = at::randn({3, 16}), b = at::randn({3});
  EXPECT_TRUE(native(x, w, b).equal(widened(x, w, b)));
}

TEST(layers_half_products, the_faster_way_is_chosen) {
  EXPECT_EQ(faster_products({100, 220}), HalfProducts::native);
  EXPECT_EQ(faster_products({100, 100}), HalfProducts::native);
  EXPECT_EQ(faster_products({100, 1}), HalfProducts::widened);
  EXPECT_EQ(faster_products({0, 0}), HalfProducts::widened);
  EXPECT_EQ(faster_products({100, 220, false}), HalfProducts::widened);
  EXPECT_EQ(describe(ProductRates{100, 1, false}),
            "bfloat16 products run at 0.010 × float32's rate on this CPU and round each partial "
            "sum");
  EXPECT_EQ(describe(ProductRates{100, 220}),
            "bfloat16 products run at 2.2 × float32's rate on this CPU");
  EXPECT_EQ(describe(ProductRates{100, 1}),
            "bfloat16 products run at 0.010 × float32's rate on this CPU");
}

TEST(layers_half_products, rates_are_measured) {
  const ProductRates rates = measure_product_rates(64, 0.001);
  EXPECT_GT(rates.float32, 0);
  EXPECT_GT(rates.bfloat16, 0);
}

TEST(layers_half_products, a_whole_gpt_is_set_and_its_tied_head_too) {
  GptOptions o;
  o.layers = 2, o.width = 16, o.heads = 2, o.context = 8, o.vocab = 11, o.tied_head = true;
  Gpt gpt(o, 1);
  EXPECT_EQ(set_half_products(gpt, HalfProducts::widened), 1 + 4 * 2);
  EXPECT_EQ(gpt.half_products(), HalfProducts::widened);
}

TEST(layers_half_layer_norm, is_the_rounded_float64_layer_norm) {
  at::manual_seed(2);
  for (at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (int64_t columns : {5, 192, 1000})
      for (int64_t rows : {1, 3, 400}) {
        const at::Tensor x = half({rows, columns}), w = half({columns}).to(type),
                         b = half({columns}).to(type), dy = half({rows, columns});
        const auto norm = [](auto& a, auto& c, auto& d) { return layer_norm(a, c, d, 1e-5); };
        const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
        const Gradients got = run(norm, x, w, b, dy),
                        exact = run(norm, wide(x), wide(w), wide(b), wide(dy));
        EXPECT_EQ(got.dw.scalar_type(), type);
        expect_rounded(got.y, exact.y, 1e-5);
        // With one column the gradient is 0, as the difference of numbers as large as dy /
        // deviation.
        if (columns > 1) expect_rounded(got.dx, exact.dx, 1e-3);
        expect_rounded(got.dw.to(at::kBFloat16), exact.dw, 1e-3);
        expect_rounded(got.db.to(at::kBFloat16), exact.db, 1e-3);
      }
}

TEST(layers_half_layer_norm, pieces_of_a_large_input_are_the_whole) {
  const at::Tensor x = half({2, 300, 512}), w = half({512}), b = half({512});  // several pieces
  const at::Tensor whole = layer_norm(x, w, b, 1e-5);
  EXPECT_TRUE(whole.select(0, 1).select(0, 299).equal(
      layer_norm(x.select(0, 1).narrow(0, 299, 1), w, b, 1e-5).select(0, 0)));
}

TEST(layers_half_layer_norm, strided_inputs_and_nans_are_as_libtorchs) {
  at::Tensor x = half({8, 4}).t();
  EXPECT_EQ(layer_norm(x, half({8}), half({8}), 1e-5).sizes(), (at::IntArrayRef{4, 8}));
  at::Tensor bad = half({4, 8});
  bad[2][3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(layer_norm(bad, half({8}), half({8}), 1e-5).isnan().sum().item<int64_t>(), 8);
}

}  // namespace half_products_test
