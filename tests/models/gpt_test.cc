// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/gpt.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/layers/causal_attention.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/random/random.h"

namespace gpt_test {

using namespace trireme;

namespace {
GptOptions tiny() {
  return {.layers = 2, .width = 16, .heads = 2, .context = 12, .vocab = 20, .dropout = 0.2};
}

// The published formula from LibTorch's operators and the named parameters alone.
at::Tensor twin(Gpt& gpt, const at::Tensor& input) {
  auto p = gpt.named_parameters();
  const auto& o = gpt.options();
  auto linear = [&](const std::string& name, const at::Tensor& x) {
    return at::linear(x, p[name + ".weight"], p[name + ".bias"]);
  };
  auto norm = [&](const std::string& name, const at::Tensor& x) {
    return at::layer_norm(x, {o.width}, p[name + ".weight"], p[name + ".bias"]);
  };
  auto x = at::embedding(p["wte.weight"], input).add(p["wpe.weight"].narrow(0, 0, input.size(1)));
  for (int64_t i = 0; i < o.layers; ++i) {
    const auto b = "blocks." + std::to_string(i) + ".";
    x = x.add(linear(b + "attn.proj",
                     plain_causal_attention(linear(b + "attn.qkv", norm(b + "ln1", x)), o.heads)));
    x = x.add(linear(b + "mlp.down", at::gelu(linear(b + "mlp.up", norm(b + "ln2", x)), "tanh")));
  }
  return at::linear(norm("ln_f", x), p[o.tied_head ? "wte.weight" : "head.weight"]);
}

at::Tensor tokens(std::vector<int64_t> sizes) { return at::randint(0, 20, sizes, at::kLong); }
}  // namespace

TEST(models_gpt, default_size_is_10_9_million) {
  Gpt gpt(GptOptions{}, 1);
  int64_t count = 0;
  for (const auto& p : gpt.parameters()) count += p.numel();
  EXPECT_NEAR(static_cast<double>(count), 10.9e6, 0.05e6);
}

TEST(models_gpt, forward_and_gradients_equal_the_plain_formula) {
  for (bool tied : {false, true}) {
    auto o = tiny();
    o.tied_head = tied;
    Gpt gpt(o, 3);
    gpt.to(at::kDouble);
    gpt.eval();
    {  // away from the tiny initial weights, where errors could hide
      at::NoGradGuard no_grad;
      for (auto& p : gpt.parameters()) p.add_(at::randn_like(p), 0.2);
    }
    auto input = tokens({3, 10}), target = tokens({3, 10});
    auto ours = gpt.forward(input);
    EXPECT_TRUE(ours.allclose(twin(gpt, input), 1e-9, 1e-9));
    gpt.loss_sum(ours, target).backward();
    std::vector<at::Tensor> gradients;
    for (auto& p : gpt.parameters()) gradients.push_back(p.grad().clone());
    gpt.zero_grad();
    at::cross_entropy_loss(twin(gpt, input).view({-1, 20}).to(at::kFloat), target.view({-1}), {}, 2)
        .backward();
    const auto named = gpt.named_parameters();
    for (size_t i = 0; i < named.size(); ++i)
      EXPECT_TRUE(gradients[i].allclose(named[i].value().grad(), 1e-5, 1e-6)) << named[i].key();
  }
}

TEST(models_gpt, a_tied_head_has_no_weight_of_its_own) {
  auto o = tiny();
  EXPECT_TRUE(Gpt(o, 1).named_parameters().contains("head.weight"));
  o.tied_head = true;
  EXPECT_FALSE(Gpt(o, 1).named_parameters().contains("head.weight"));
}

TEST(models_gpt, loss_before_training_is_that_of_guessing) {
  Gpt gpt(tiny(), 1);
  gpt.eval();
  auto loss = gpt.loss_sum(gpt.forward(tokens({4, 12})), tokens({4, 12})).item<double>() / 48;
  EXPECT_NEAR(loss, std::log(20.0), 0.05);
}

TEST(models_gpt, micro_batches_of_any_split_get_the_same_dropout) {
  Gpt gpt(tiny(), 1);
  auto input = tokens({4, 12}), target = tokens({4, 12});
  auto loss = [&](int64_t from, int64_t n) {
    std::vector<int64_t> samples;
    for (int64_t i = from; i < from + n; ++i) samples.push_back(100 + i);
    RandomScope scope({42, 5, samples});
    return gpt.loss_sum(gpt.forward(input.narrow(0, from, n)), target.narrow(0, from, n))
        .item<double>();
  };
  EXPECT_NEAR(loss(0, 4), loss(0, 2) + loss(2, 2), 1e-3);
  EXPECT_EQ(loss(1, 2), loss(1, 2));
  gpt.eval();
  const double without = loss(0, 4);
  gpt.train();
  EXPECT_GT(std::abs(loss(0, 4) - without), 1e-4) << "dropout drops";
}

TEST(models_gpt, recomputed_blocks_give_the_same_bits) {
  auto input = tokens({4, 12}), target = tokens({4, 12});
  auto gradients = [&](int64_t every) {
    GptOptions options = tiny();
    options.layers = 4;
    options.recompute_every = every;
    Gpt gpt(options, 1);
    RandomScope scope({42, 5, {7, 8, 9, 10}});
    auto loss = gpt.loss_sum(gpt.forward(input), target);
    loss.backward();
    std::vector<at::Tensor> all{loss.detach()};
    for (auto& p : gpt.parameters()) all.push_back(p.grad());
    return all;
  };
  const auto plain = gradients(0);
  for (int64_t every : {1, 2, 3, 5}) {
    const auto again = gradients(every);
    ASSERT_EQ(again.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(again[i])) << every;
  }
}

TEST(models_gpt, any_choice_of_blocks_can_be_recomputed_and_each_saves_as_much) {
  GptOptions options = tiny();
  options.layers = 4;
  Gpt gpt(options, 1);
  EXPECT_EQ(gpt.blocks(), 4);
  auto input = tokens({4, 12}), target = tokens({4, 12});
  auto kept = [&](std::vector<bool> blocks) {
    gpt.set_recompute(std::move(blocks));
    RandomScope scope({42, 5, {7, 8, 9, 10}});
    LiveBytes live;
    auto loss = gpt.loss_sum(gpt.forward(input), target);
    return live.now();
  };
  const int64_t all = kept({false, false, false, false});
  const int64_t saved = all - kept({true, false, false, false});
  EXPECT_GT(saved, 0);
  for (size_t i = 1; i < 4; ++i) {
    std::vector<bool> one(4);
    one[i] = true;
    EXPECT_EQ(all - kept(one), saved) << i;
  }
  EXPECT_THROW(gpt.set_recompute({true}), UsageError);
}

TEST(models_gpt, next_logits_are_those_of_the_last_position) {
  Gpt gpt(tiny(), 1);
  gpt.eval();
  auto input = tokens({2, 7});
  EXPECT_TRUE(gpt.next_logits(input).allclose(gpt.forward(input).select(1, 6), 1e-5, 1e-6));
}

TEST(models_gpt, learns_a_pattern) {
  auto o = tiny();
  o.dropout = 0;
  Gpt gpt(o, 1);
  auto line = at::arange(0, 26, at::kLong).remainder(5);
  auto input = at::stack({line.narrow(0, 0, 12), line.narrow(0, 3, 12)});
  auto target = at::stack({line.narrow(0, 1, 12), line.narrow(0, 4, 12)});
  double loss = 0;
  for (int i = 0; i < 60; ++i) {
    auto l = gpt.loss_sum(gpt.forward(input), target).div(24);
    l.backward();
    at::NoGradGuard no_grad;
    for (auto& p : gpt.parameters()) {
      p.sub_(p.grad(), 0.5);
      p.mutable_grad().zero_();
    }
    loss = l.item<double>();
  }
  EXPECT_LT(loss, 0.3);
}

TEST(models_gpt, bad_options_and_inputs_are_refused) {
  auto o = tiny();
  o.heads = 3;
  EXPECT_THROW(Gpt(o, 1), UsageError);
  o = tiny();
  o.layers = 0;
  EXPECT_THROW(Gpt(o, 1), UsageError);
  o = tiny();
  o.dropout = 1;
  EXPECT_THROW(Gpt(o, 1), UsageError);
  o = tiny();
  o.recompute_every = -1;
  EXPECT_THROW(Gpt(o, 1), UsageError);
  Gpt gpt(tiny(), 1);
  EXPECT_THROW(gpt.forward(tokens({2, 13})), UsageError);
  EXPECT_THROW(gpt.forward(tokens({5})), UsageError);
}

// Losses and gradients of a packed row are those of its documents, one by one.
TEST(models_gpt, documents_in_one_row_are_trained_as_one_by_one) {
  constexpr int64_t kEnd = 19;
  for (const int64_t again : {0, 1}) {
    auto o = tiny();
    o.recompute_every = again;
    o.end_of_document = kEnd;
    Gpt gpt(o, 3);
    gpt.to(at::kDouble);
    gpt.eval();
    at::manual_seed(5);
    const std::vector<int64_t> lengths = {3, 1, 5, 2};  // the last one has no end yet
    std::vector<at::Tensor> documents;
    for (const int64_t n : lengths) {
      documents.push_back(at::randint(0, kEnd, {1, n}, at::kLong));
      if (documents.size() < lengths.size()) documents.back()[0][n - 1] = kEnd;
    }
    const at::Tensor row = at::cat(documents, 1);
    const auto mean_of = [&](const at::Tensor& out) {  // of what is not symmetric
      const at::Tensor w = at::arange(out.size(-1), at::kDouble).sin();
      return out.mul(w).sum();
    };
    const auto gradients = [&] {
      std::vector<at::Tensor> all;
      for (auto& p : gpt.parameters()) {
        all.push_back(p.grad().clone());
        p.mutable_grad() = at::Tensor();
      }
      return all;
    };
    std::vector<at::Tensor> alone;
    for (const at::Tensor& d : documents) {
      alone.push_back(gpt.forward(d));
      mean_of(alone.back()).backward();
    }
    const auto want = gradients();
    const at::Tensor packed = gpt.forward(row);
    mean_of(packed).backward();
    const auto got = gradients();
    EXPECT_LT((packed - at::cat(alone, 1)).abs().max().item<double>(), 1e-12);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_LE((got[i] - want[i]).norm().item<double>(),
                1e-12 + 1e-10 * want[i].norm().item<double>())
          << i;
    // The next token comes from the open document alone.
    EXPECT_LT((gpt.next_logits(row) - alone.back().select(1, 1)).abs().max().item<double>(), 1e-12);
  }
}

}  // namespace gpt_test
