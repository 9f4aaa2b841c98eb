// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/attention.h"

#include <fmt/core.h>

#include <limits>
#include <numeric>

#include "tests/layers/gradcheck.h"
#include "trireme/base/error.h"
#include "trireme/layers/attention_aten.h"
#include "trireme/layers/attention_blocks.h"
#include "trireme/layers/causal_attention.h"

namespace attention_test {

using namespace trireme;

namespace {

struct Case {
  int64_t queries, queries_at, keys, keys_at, heads, kv_heads, width;
  int64_t longest = 0;  // document; 0: one

  AttentionMask mask(int64_t batch) const {
    AttentionMask m{queries_at, keys_at, {}};
    if (!longest) return m;
    m.starts = at::empty({batch, queries}, at::kLong);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t place = queries_at + i, shifted = place + 3 * b;
        m.starts[b][i] = std::max<int64_t>(0, shifted / longest * longest - 3 * b);
      }
    return m;
  }
  std::string text() const {
    return fmt::format("{}@{} against {}@{}, heads {}/{} of {}, documents of {}", queries,
                       queries_at, keys, keys_at, heads, kv_heads, width, longest);
  }
};

// The formula, in float64, with repeated keys and a whole matrix of scores.
Attended by_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionMask& mask) {
  const int64_t each = q.size(2) / k.size(2);
  const auto heads_first = [](const at::Tensor& t) { return t.transpose(1, 2).to(at::kDouble); };
  const at::Tensor kk = heads_first(k).repeat_interleave(each, 1),
                   vv = heads_first(v).repeat_interleave(each, 1);
  const at::Tensor scores =
      heads_first(q).matmul(kk.transpose(2, 3)).div(std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor key = at::arange(mask.keys_at, mask.keys_at + k.size(1)).view({1, 1, 1, -1});
  const at::Tensor query =
      at::arange(mask.queries_at, mask.queries_at + q.size(1)).view({1, 1, -1, 1});
  at::Tensor seen = key.le(query);
  if (mask.starts.defined())
    seen = seen.logical_and(key.ge(mask.starts.unsqueeze(1).unsqueeze(-1)));
  const at::Tensor weights = scores.exp().mul(seen);  // small scores: no shift is needed
  const at::Tensor sums = weights.sum(-1, true);
  const at::Tensor out = weights.matmul(vv).div(sums.add(sums.eq(0).to(at::kDouble)));
  return {out.transpose(1, 2), sums.squeeze(-1).log()};
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>();
}

struct Inputs {
  Inputs(const Case& c, at::ScalarType type) {
    at::manual_seed(c.queries + 7 * c.keys);
    const auto random = [&](int64_t n, int64_t heads) {
      return at::randn({2, n, heads, c.width}, at::kDouble).to(type).set_requires_grad(true);
    };
    q = random(c.queries, c.heads), k = random(c.keys, c.kv_heads), v = random(c.keys, c.kv_heads);
    g = at::randn(q.sizes(), at::kDouble).to(type);
  }
  std::vector<at::Tensor> gradients(const at::Tensor& out) const {
    for (const at::Tensor& t : {q, k, v}) t.mutable_grad() = at::Tensor();
    out.backward(g.to(out.scalar_type()));
    return {q.grad(), k.grad(), v.grad()};
  }
  at::Tensor q, k, v, g;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t longest : {0, 1, 9, 70})
    for (const auto& [kv, width] : {std::pair<int64_t, int64_t>{4, 5}, {2, 8}, {1, 1}}) {
      all.push_back({70, 0, 70, 0, 4, kv, width, longest});      // the causal diagonal
      all.push_back({66, 100, 70, 30, 4, kv, width, longest});   // all visible
      all.push_back({20, 10, 30, 30, 4, kv, width, longest});    // none
      all.push_back({130, 20, 100, 60, 4, kv, width, longest});  // shifted: some see none
      all.push_back({100, 60, 130, 20, 4, kv, width, longest});
      all.push_back({1, 90, 91, 0, 4, kv, width, longest});  // the next token
    }
  return all;
}

void same_as_the_formula(at::ScalarType type, double near) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.text());
    const Inputs in(c, type);
    const AttentionMask mask = c.mask(2);
    const Attended ours = attention(in.q, in.k, in.v, mask),
                   want = by_formula(in.q, in.k, in.v, mask);
    EXPECT_EQ(ours.out.scalar_type(), type);
    EXPECT_FALSE(ours.log_sums.requires_grad());
    ASSERT_LT(difference(ours.out, want.out), near);
    ASSERT_TRUE(at::allclose(ours.log_sums.to(at::kDouble), want.log_sums, near, near));
    const auto a = in.gradients(ours.out), b = in.gradients(want.out);
    for (size_t i = 0; i < 3; ++i) ASSERT_LT(difference(a[i], b[i]), 10 * near) << i;
  }
}

}  // namespace

TEST(layers_attention, equals_the_formula_wherever_queries_and_keys_lie) {
  same_as_the_formula(at::kDouble, 1e-12);
  same_as_the_formula(at::kFloat, 2e-6);
  same_as_the_formula(at::kBFloat16, 2e-2);
}

TEST(layers_attention, is_causal_attention_to_the_bit_where_that_is_asked) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const int64_t longest : {0, 20}) {
      const Case c{130, 0, 130, 0, 3, 3, 8, longest};
      const Inputs in(c, type);
      const AttentionMask mask = c.mask(2);
      const at::Tensor packed = at::cat({in.q, in.k, in.v}, 2).view({2, 130, 72});
      const at::Tensor all = packed.detach().set_requires_grad(true);
      const at::Tensor y = causal_attention(all, 3, mask.starts);
      const Attended ours = attention(in.q, in.k, in.v, mask);
      EXPECT_TRUE(ours.out.equal(y.view(ours.out.sizes())));
      y.backward(in.g.view(y.sizes()));
      const auto grads = in.gradients(ours.out);
      EXPECT_TRUE(at::cat(grads, 2).view(all.sizes()).equal(all.grad()));
    }
}

// What ranks do that see the keys range by range: one answer, and one gradient, on the host by the
// kernels and by operators.
TEST(layers_attention, ranges_of_keys_put_together_are_all_keys) {
  for (const bool by_operators : {false, true})
    for (const int64_t longest : {0, 9, 200})
      for (const auto& cuts :
           {std::vector<int64_t>{0, 60, 130}, {0, 1, 64, 65, 130}, {0, 129, 130}}) {
        const Case c{100, 30, 130, 0, 4, 2, 6, longest};
        const Inputs in(c, at::kDouble);
        const AttentionMask mask = c.mask(2);
        const Attended want = attention(in.q, in.k, in.v, mask);
        const auto grads = in.gradients(want.out);
        const auto forward =
            by_operators ? trireme::detail::attention_aten : trireme::detail::attend_block;
        const auto backward = by_operators ? trireme::detail::attention_backward_aten
                                           : trireme::detail::attend_block_backward;
        const at::NoGradGuard no_grad;
        const at::Tensor out = at::full_like(want.out, 7), logs = at::full_like(want.log_sums, 7);
        const auto range = [&](const at::Tensor& t, size_t i) {
          return t.narrow(1, cuts[i - 1], cuts[i] - cuts[i - 1]);
        };
        const auto part = [&](size_t i) {
          AttentionMask m = mask;
          m.keys_at = cuts[i - 1];
          return m;
        };
        for (size_t i = cuts.size() - 1; i > 0; --i)  // the last first: some see nothing of it
          forward(in.q, range(in.k, i), range(in.v, i), part(i), out, logs, i == cuts.size() - 1);
        EXPECT_LT(difference(out, want.out), 1e-13);
        EXPECT_TRUE(at::allclose(logs, want.log_sums, 1e-13, 1e-13));
        const at::Tensor dq = at::full_like(in.q, 7), dk = at::zeros_like(in.k).add(1),
                         dv = at::zeros_like(in.v).add(1);
        for (size_t i = 1; i < cuts.size(); ++i)
          backward(in.q, range(in.k, i), range(in.v, i), part(i), out, in.g, logs,
                   {dq, range(dk, i), range(dv, i), i > 1, true});
        EXPECT_LT(difference(dq, grads[0]), 1e-12) << by_operators;
        EXPECT_LT(difference(dk.sub(1), grads[1]), 1e-12) << by_operators;
        EXPECT_LT(difference(dv.sub(1), grads[2]), 1e-12) << by_operators;
      }
}

TEST(layers_attention, by_operators_it_is_the_same_for_every_range) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.text());
    const Inputs in(c, at::kDouble);
    const AttentionMask mask = c.mask(2);
    const Attended want = attention(in.q, in.k, in.v, mask);
    const auto grads = in.gradients(want.out);
    const at::NoGradGuard no_grad;
    const at::Tensor out = at::empty_like(want.out), logs = at::empty_like(want.log_sums);
    trireme::detail::attention_aten(in.q, in.k, in.v, mask, out, logs, true);
    EXPECT_LT(difference(out, want.out), 1e-12);
    EXPECT_TRUE(at::allclose(logs, want.log_sums, 1e-12, 1e-12));
    const trireme::detail::BlockGradients d{at::empty_like(in.q), at::empty_like(in.k),
                                            at::empty_like(in.v)};
    trireme::detail::attention_backward_aten(in.q, in.k, in.v, mask, out, in.g, logs, d);
    EXPECT_LT(difference(d.dq, grads[0]), 1e-12);
    EXPECT_LT(difference(d.dk, grads[1]), 1e-12);
    EXPECT_LT(difference(d.dv, grads[2]), 1e-12);
  }
}

TEST(layers_attention, passes_a_gradient_check_with_grouped_heads) {
  at::manual_seed(1);
  gradcheck(
      [](auto& in) {
        return attention(in[0], in[1], in[2], {2, 0, {}}).out;
      },
      {at::randn({1, 4, 4, 3}, at::kDouble), at::randn({1, 6, 2, 3}, at::kDouble),
       at::randn({1, 6, 2, 3}, at::kDouble)});
}

TEST(layers_attention, reads_heads_where_they_lie) {
  at::manual_seed(3);
  const at::Tensor packed = at::randn({2, 40, (4 + 2 + 2) * 5});
  const auto parts = packed.split_with_sizes({20, 10, 10}, 2);
  const at::Tensor q = parts[0].view({2, 40, 4, 5}), k = parts[1].view({2, 40, 2, 5}),
                   v = parts[2].view({2, 40, 2, 5});
  const at::Tensor want = attention(q.contiguous(), k.contiguous(), v.contiguous()).out;
  EXPECT_TRUE(attention(q, k, v).out.equal(want));
  const auto turned = [](const at::Tensor& t) {
    return t.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0});
  };
  EXPECT_TRUE(attention(turned(q), turned(k), turned(v)).out.equal(want));
}

TEST(layers_attention, a_query_that_sees_no_key_gives_zero_and_takes_no_part) {
  const at::Tensor q = at::randn({1, 3, 1, 4}), k = at::randn({1, 2, 1, 4}).set_requires_grad(true),
                   v = at::randn({1, 2, 1, 4});
  const Attended a = attention(q, k, v, {4, 6, {}});  // place 6 alone sees key 6
  EXPECT_TRUE(a.out.narrow(1, 0, 2).eq(0).all().item<bool>());
  EXPECT_EQ(a.log_sums[0][0][1].item<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(a.out[0][2].equal(v[0][0]));
  a.out.sum().backward();
  EXPECT_TRUE(k.grad().isfinite().all().item<bool>());
  EXPECT_EQ(attention(q, k.narrow(1, 0, 0), v.narrow(1, 0, 0)).out.abs().sum().item<double>(), 0);
  EXPECT_EQ(attention(q.narrow(1, 0, 0), k, v).out.numel(), 0);
}

TEST(layers_attention, a_nan_is_not_hidden_when_ranges_are_put_together) {
  const at::Tensor q = at::randn({1, 2, 1, 4}), k = at::randn({1, 2, 1, 4}),
                   v = at::randn({1, 2, 1, 4});
  k[0][1].fill_(std::numeric_limits<float>::quiet_NaN());
  for (const bool nan_first : {false, true}) {
    const at::Tensor out = at::empty({1, 2, 1, 4}), logs = at::empty({1, 1, 2});
    for (const bool first : {true, false}) {
      const int64_t at = first == nan_first ? 1 : 0;
      trireme::detail::attend_block(q, k.narrow(1, at, 1), v.narrow(1, at, 1), {5, at, {}}, out,
                                    logs, first);
    }
    EXPECT_TRUE(out.isnan().all().item<bool>()) << nan_first;
  }
}

TEST(layers_attention, what_does_not_fit_is_refused_by_its_shape) {
  const at::Tensor q = at::zeros({2, 5, 4, 3}), k = at::zeros({2, 6, 2, 3});
  const auto says = [](const auto& f, const char* text) {
    try {
      f();
      ADD_FAILURE() << "nothing thrown: " << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  says([&] { attention(q, k, k.narrow(1, 0, 5)); }, "[2, 5, 4, 3] on cpu in Float");
  says([&] { attention(q, k.to(at::kDouble), k.to(at::kDouble)); }, "of the same dtype");
  says(
      [&] {
        attention(q, at::zeros({2, 6, 3, 3}), at::zeros({2, 6, 3, 3}));
      },
      "a multiple of kv_heads");
  says([&] { attention(q, {}, k); }, "undefined");
  says([&] { attention(q.to(at::kLong), k.to(at::kLong), k.to(at::kLong)); }, "must be");
  says([&] { attention(q, k, k, {-1, 0, {}}); }, "places count from 0");
  says(
      [&] {
        attention(q, k, k, {1, 0, at::zeros({2, 6}, at::kLong)});
      },
      "must be [2, 5] in int64");
  says(
      [&] {
        attention(q, k, k, {1, 0, at::full({2, 5}, 2, at::kLong)});
      },
      "place 1 of row 0 starts at 2, which is not in 0 … 1");
  says([&] { attention(q, k, k, {1, 0, at::full({2, 5}, -1, at::kLong)}); }, "starts at -1");
}

}  // namespace attention_test
