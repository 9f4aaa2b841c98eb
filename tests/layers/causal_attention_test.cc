// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/causal_attention.h"

#include "tests/layers/gradcheck.h"
#include "trireme/base/error.h"

namespace causal_attention_test {

using namespace trireme;

namespace {
// |a - b| against the size of b.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.sub(b).norm().item<double>() + 1e-30) / (b.norm().item<double>() + 1e-30);
}

void same_as_plain(int64_t batch, int64_t time, int64_t heads, int64_t width, at::ScalarType dtype,
                   double tolerance) {
  at::manual_seed(time);
  auto x = at::randn({batch, time, 3 * heads * width}, at::dtype(dtype));
  auto a = x.clone().set_requires_grad(true), b = x.clone().set_requires_grad(true);
  auto g = at::randn({batch, time, heads * width}, at::dtype(dtype));
  auto ya = causal_attention(a, heads), yb = plain_causal_attention(b, heads);
  ya.backward(g);
  yb.backward(g);
  EXPECT_LT(difference(ya, yb), tolerance) << batch << " " << time << " " << heads << " " << width;
  EXPECT_LT(difference(a.grad(), b.grad()), tolerance)
      << batch << " " << time << " " << heads << " " << width;
}
}  // namespace

TEST(layers_causal_attention, equals_the_plain_formula_for_every_kind_of_size) {
  for (int64_t time : {1, 2, 15, 16, 17, 63, 64, 65, 100, 128, 129, 200})
    for (int64_t width : {1, 8, 20}) {
      same_as_plain(2, time, 3, width, at::kFloat, 1e-5);
      same_as_plain(2, time, 3, width, at::kDouble, 1e-12);
    }
  same_as_plain(4, 256, 6, 64, at::kFloat, 1e-5);
}

// Documents in one row against each of them by itself, forward and backward; and the plain formula.
TEST(layers_causal_attention, a_document_sees_itself_alone_wherever_it_lies) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const int64_t time : {7, 64, 65, 130, 200})
      for (const int64_t longest : {1, 3, 20, 70, 300}) {
        at::manual_seed(time + longest);
        const int64_t heads = 2, width = 5;
        const double near = dtype == at::kFloat ? 1e-5 : 1e-12;
        const at::Tensor x = at::randn({2, time, 3 * heads * width}, at::dtype(dtype));
        const at::Tensor g = at::randn({2, time, heads * width}, at::dtype(dtype));
        at::Tensor starts = at::zeros({2, time}, at::kLong), want = at::zeros_like(g),
                   want_grad = at::zeros_like(x);
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t begin = 0, n = 0; begin < time; begin += n) {
            n = std::min(time - begin, 1 + (begin * 7 + b * 5) % longest);
            starts[b].narrow(0, begin, n).fill_(begin);
            const auto cut = [&](const at::Tensor& t) {
              return t.narrow(0, b, 1).narrow(1, begin, n);
            };
            at::Tensor own = cut(x).clone().set_requires_grad(true);
            const at::Tensor y = causal_attention(own, heads);
            y.backward(cut(g));
            cut(want).copy_(y.detach());
            cut(want_grad).copy_(own.grad());
          }
        for (const bool plain : {false, true}) {
          at::Tensor all = x.clone().set_requires_grad(true);
          const at::Tensor y = plain ? plain_causal_attention(all, heads, starts)
                                     : causal_attention(all, heads, starts);
          y.backward(g);
          EXPECT_LT(difference(y.detach(), want), near) << time << " " << longest << " " << plain;
          EXPECT_LT(difference(all.grad(), want_grad), near) << time << " " << longest;
        }
      }
}

TEST(layers_causal_attention, starts_that_cannot_be_are_refused) {
  const at::Tensor x = at::randn({2, 4, 3 * 8});
  const auto with = [&](const at::Tensor& starts) { causal_attention(x, 2, starts); };
  EXPECT_NO_THROW(with(at::tensor({0, 1, 1, 3, 0, 0, 0, 0}, at::kLong).view({2, 4})));
  EXPECT_THROW(with(at::zeros({2, 5}, at::kLong)), UsageError);
  EXPECT_THROW(with(at::zeros({2, 4}, at::kInt)), UsageError);
  EXPECT_THROW(with(at::tensor({0, 2, 0, 0, 0, 0, 0, 0}, at::kLong).view({2, 4})), UsageError);
  EXPECT_THROW(with(at::zeros({2, 4}, at::kLong).sub(1)), UsageError);
}

TEST(layers_causal_attention, passes_a_gradient_check) {
  at::manual_seed(1);
  gradcheck([](auto& in) { return causal_attention(in[0], 2); },
            {at::randn({1, 5, 18}, at::kDouble)});
}

TEST(layers_causal_attention, a_position_sees_nothing_after_it) {
  at::manual_seed(2);
  auto x = at::randn({1, 100, 3 * 8});
  auto y = causal_attention(x, 2);
  auto changed = x.clone();
  changed.narrow(1, 70, 30).fill_(1e3);
  EXPECT_TRUE(causal_attention(changed, 2).narrow(1, 0, 70).equal(y.narrow(1, 0, 70)));
}

TEST(layers_causal_attention, large_scores_stay_finite) {
  auto x = at::randn({1, 80, 3 * 8}).mul(300).set_requires_grad(true);
  auto y = causal_attention(x, 1);
  y.sum().backward();
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

TEST(layers_causal_attention, a_nan_is_not_hidden) {
  auto x = at::randn({1, 20, 3 * 8});
  x[0][4][9] = std::numeric_limits<float>::quiet_NaN();  // a key
  auto y = causal_attention(x, 1);
  EXPECT_TRUE(y.narrow(1, 0, 4).isfinite().all().item<bool>());
  EXPECT_TRUE(y.narrow(1, 4, 16).isnan().any(-1).all().item<bool>());
}

TEST(layers_causal_attention, takes_what_is_not_contiguous_and_other_dtypes) {
  auto x = at::randn({30, 2, 3 * 8}).transpose(0, 1);
  EXPECT_TRUE(causal_attention(x, 2).equal(causal_attention(x.contiguous(), 2)));
  auto half = causal_attention(x.contiguous().to(at::kBFloat16), 2);
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  EXPECT_LT(difference(half.to(at::kFloat), causal_attention(x, 2)), 0.02);
}

TEST(layers_causal_attention, is_the_same_bits_each_time) {
  auto x = at::randn({2, 100, 3 * 16});
  EXPECT_TRUE(causal_attention(x, 2).equal(causal_attention(x, 2)));
}

TEST(layers_causal_attention, wrong_shapes_are_refused) {
  EXPECT_THROW(causal_attention(at::zeros({2, 3}), 1), UsageError);
  EXPECT_THROW(causal_attention(at::zeros({2, 3, 10}), 2), UsageError);
  EXPECT_THROW(causal_attention(at::zeros({2, 3, 12}), 0), UsageError);
}

}  // namespace causal_attention_test
