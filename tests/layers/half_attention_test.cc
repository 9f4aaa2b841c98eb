// SPDX-License-Identifier: Apache-2.0
// Attention by bfloat16 products, chosen by force: this processor may be slow at them. Against
// float64 and against the way that computes in float32.
#include "trireme/layers/half_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/layers/causal_attention.h"
#include "trireme/layers/half_products.h"
#include "trireme/models/gpt.h"
#include "trireme/tensor/random/random.h"

namespace half_attention_test {

using namespace trireme;

namespace {

/// LibTorch's products may round each partial sum here.
double rounding() {
  static const bool float32_sums = measure_attention_rates(0).float32_sums;
  return float32_sums ? 0.01 : 0.04;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x - y).norm().item<double>() / (y.norm().item<double>() + 1e-30);
}

struct Seen {
  at::Tensor output, gradient;
};

template <class Attend>
Seen run(const at::Tensor& qkv, const at::Tensor& g, const Attend& attend) {
  at::Tensor x = qkv.clone().set_requires_grad(true);
  const at::Tensor y = attend(x);
  y.backward(g);
  return {y.detach(), x.grad()};
}

/// Documents of 1 + 7·i mod `longest` places in rows of `time`; undefined for none.
at::Tensor starts_of(int64_t batch, int64_t time, int64_t longest) {
  if (longest == 0) return {};
  at::Tensor starts = at::zeros({batch, time}, at::kLong);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t begin = 0, n = 0; begin < time; begin += n) {
      n = std::min(time - begin, 1 + (begin * 7 + b) % longest);
      starts[b].narrow(0, begin, n).fill_(begin);
    }
  return starts;
}

}  // namespace

TEST(layers_half_attention, is_float64s_within_its_rounding_forward_and_backward) {
  for (const int64_t time : {1, 5, 127, 128, 129, 300})
    for (const int64_t longest : {0, 4, 90}) {
      at::manual_seed(time + longest);
      const int64_t heads = 2, width = 16;
      const at::Tensor x = at::randn({2, time, 3 * heads * width}).to(at::kBFloat16);
      const at::Tensor g = at::randn({2, time, heads * width}).to(at::kBFloat16);
      const at::Tensor starts = starts_of(2, time, longest);
      const Seen half =
          run(x, g, [&](const auto& t) { return causal_attention_half(t, heads, starts); });
      const Seen wide =
          run(x, g, [&](const auto& t) { return causal_attention(t, heads, starts); });
      const Seen exact = run(x.to(at::kDouble), g.to(at::kDouble), [&](const auto& t) {
        return plain_causal_attention(t, heads, starts);
      });
      EXPECT_EQ(half.output.scalar_type(), at::kBFloat16);
      EXPECT_EQ(half.gradient.scalar_type(), at::kBFloat16);
      for (const Seen& other : {exact, wide}) {
        EXPECT_LT(distance(half.output, other.output), rounding()) << time << " " << longest;
        EXPECT_LT(distance(half.gradient, other.gradient), 3 * rounding())
            << time << " " << longest;
      }
    }
}

TEST(layers_half_attention, sees_nothing_later_and_hides_no_nan) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({1, 150, 3 * 8}).to(at::kBFloat16);
  const at::Tensor y = causal_attention_half(x, 2);
  at::Tensor changed = x.clone();
  changed.narrow(1, 140, 10).fill_(100);
  EXPECT_TRUE(causal_attention_half(changed, 2).narrow(1, 0, 140).equal(y.narrow(1, 0, 140)));
  at::Tensor bad = x.clone();
  bad[0][30][9] = std::numeric_limits<float>::quiet_NaN();  // a key
  const at::Tensor seen = causal_attention_half(bad, 2);
  EXPECT_TRUE(seen.narrow(1, 0, 30).isfinite().all().item<bool>());
  EXPECT_TRUE(seen.narrow(1, 30, 120).isnan().any(-1).all().item<bool>());
  EXPECT_TRUE(y.equal(causal_attention_half(x, 2)));  // the same bits each time
}

TEST(layers_half_attention, what_is_not_bfloat16_or_has_other_shapes_is_refused) {
  EXPECT_THROW(causal_attention_half(at::zeros({1, 2, 12}), 2), UsageError);
  const at::Tensor x = at::zeros({1, 2, 12}, at::kBFloat16);
  EXPECT_THROW(causal_attention_half(x, 5), UsageError);
  EXPECT_THROW(causal_attention_half(x, 2, at::zeros({1, 3}, at::kLong)), UsageError);
  EXPECT_EQ(causal_attention_half(at::zeros({0, 2, 12}, at::kBFloat16), 2).numel(), 0);
}

TEST(layers_half_attention, the_faster_way_with_float32_sums_is_chosen) {
  EXPECT_EQ(faster_attention({1, 1.5, true}), HalfAttention::native);
  EXPECT_EQ(faster_attention({1, 0.9, true}), HalfAttention::widened);
  EXPECT_EQ(faster_attention({1, 3, false}), HalfAttention::widened);
  EXPECT_EQ(describe(AttentionRates{2, 3, true}), "bfloat16 attention at 1.5 × float32's");
  EXPECT_EQ(describe(AttentionRates{2, 0.1, false}),
            "bfloat16 attention at 0.050 × float32's, rounding each partial sum");
  const AttentionRates measured = measure_attention_rates(0);
  EXPECT_GT(measured.widened, 0);
  EXPECT_GT(measured.native, 0);
}

// With dropout, documents and recomputation, as in training.
TEST(layers_half_attention, a_gpt_computes_by_the_way_that_was_chosen) {
  GptOptions o{.layers = 2, .width = 32, .heads = 2, .context = 140, .vocab = 20, .dropout = 0.1};
  o.end_of_document = 3;
  o.recompute_every = 2;
  at::manual_seed(4);
  const at::Tensor ids = at::randint(0, 20, {2, 140}, at::kLong);
  std::vector<at::Tensor> outputs, gradients;
  for (const auto way : {HalfAttention::widened, HalfAttention::native}) {
    Gpt gpt(o, 3);
    gpt.to(at::kBFloat16);
    set_half_products(gpt, HalfProducts::widened);
    EXPECT_EQ(set_half_attention(gpt, way), 2);
    RandomScope scope({1, 2, {7, 8}});
    const at::Tensor out = gpt.forward(ids);
    out.to(at::kFloat).sin().sum().backward();
    outputs.push_back(out.detach());
    gradients.push_back(gpt.named_parameters()["blocks.0.attn.qkv.weight"].grad());
  }
  EXPECT_FALSE(outputs[0].equal(outputs[1]));
  EXPECT_LT(distance(outputs[1], outputs[0]), 2 * rounding());
  EXPECT_LT(distance(gradients[1], gradients[0]), 6 * rounding());
}

}  // namespace half_attention_test
