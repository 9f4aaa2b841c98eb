// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/bert.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/tensor/random/random.h"

namespace bert_test {

using namespace trireme;

namespace {

BertOptions tiny() {
  BertOptions o;
  o.vocab = 20, o.width = 16, o.layers = 1, o.heads = 2, o.inner = 24, o.positions = 12;
  return o;
}

/// In float64, away from the small weights that it begins with, without dropout.
template <class Part>
std::shared_ptr<Part> made(const BertOptions& o = tiny()) {
  auto part = std::make_shared<Part>(o);
  init_bert(*part, 3, "part.");
  part->to(at::kDouble);
  part->eval();
  at::NoGradGuard no_grad;
  for (auto& p : part->parameters()) p.add_(at::randn_like(p).mul(0.3));
  return part;
}

at::Tensor linear(torch::nn::Module& m, const std::string& name, const at::Tensor& x) {
  auto p = m.named_parameters();
  return at::linear(x, p[name + ".weight"], p[name + ".bias"]);
}
at::Tensor norm(torch::nn::Module& m, const std::string& name, const at::Tensor& x) {
  auto p = m.named_parameters();
  return at::layer_norm(x, {x.size(-1)}, p[name + ".weight"], p[name + ".bias"], 1e-12);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST(models_bert, an_embedding_is_the_norm_of_the_sum_of_its_three_tables) {
  at::manual_seed(1);
  auto part = made<BertEmbeddings>();
  const at::Tensor ids = at::randint(0, 20, {3, 7}, at::kLong),
                   types = at::randint(0, 2, {3, 7}, at::kLong);
  auto p = part->named_parameters();
  const at::Tensor x = at::embedding(p["word_embeddings.weight"], ids) +
                       at::embedding(p["token_type_embeddings.weight"], types) +
                       p["position_embeddings.weight"].narrow(0, 0, 7);
  EXPECT_LT(difference(part->forward(ids, types), norm(*part, "LayerNorm", x)), 1e-12);
}

TEST(models_bert, a_block_is_the_published_formula_and_does_not_see_padding) {
  at::manual_seed(2);
  auto part = made<BertLayer>();
  const at::Tensor x = at::randn({2, 5, 16}, at::kDouble);
  const at::Tensor seen =
      at::tensor(std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}).view({2, 5});
  const auto heads = [](const at::Tensor& y) { return y.view({2, 5, 2, 8}).transpose(1, 2); };
  const at::Tensor q = heads(linear(*part, "attention.self.query", x)),
                   k = heads(linear(*part, "attention.self.key", x)),
                   v = heads(linear(*part, "attention.self.value", x));
  const at::Tensor scores = (q.matmul(k.transpose(2, 3)) / std::sqrt(8.0))
                                .masked_fill(seen.eq(0).view({2, 1, 1, 5}), -INFINITY)
                                .softmax(-1);
  const at::Tensor attended = scores.matmul(v).transpose(1, 2).reshape({2, 5, 16});
  const at::Tensor y = norm(*part, "attention.output.LayerNorm",
                            linear(*part, "attention.output.dense", attended) + x);
  const at::Tensor up = linear(*part, "intermediate.dense", y);
  const at::Tensor gelu = up * 0.5 * (1 + at::erf(up / std::sqrt(2.0)));
  const at::Tensor want = norm(*part, "output.LayerNorm", linear(*part, "output.dense", gelu) + y);
  EXPECT_LT(difference(part->forward(x, bert_mask(seen)), want), 1e-12);

  at::Tensor other = x.clone();
  other[1].narrow(0, 3, 2).mul_(100);
  EXPECT_EQ(difference(part->forward(other, bert_mask(seen))[1].narrow(0, 0, 3),
                       part->forward(x, bert_mask(seen))[1].narrow(0, 0, 3)),
            0);
}

TEST(models_bert, heads_are_linear_layers_and_their_sigmoids) {
  at::manual_seed(3);
  auto part = made<QuestionHeads>();
  auto pooler = made<BertPooler>();
  const at::Tensor hidden = at::randn({3, 6, 16}, at::kDouble);
  const at::Tensor pooled = pooler->forward(hidden);
  EXPECT_LT(difference(pooled, linear(*pooler, "dense", hidden.select(1, 0)).tanh()), 1e-14);
  const auto said = part->forward(hidden, pooled);
  const at::Tensor both = linear(*part, "position_outputs", hidden);
  EXPECT_LT(difference(said[QuestionHeads::start], both.select(2, 0)), 1e-12);
  EXPECT_LT(difference(said[QuestionHeads::end], both.select(2, 1)), 1e-12);
  EXPECT_LT(difference(said[QuestionHeads::classes], linear(*part, "classifier", pooled)), 1e-12);
  EXPECT_LT(difference(said[QuestionHeads::start_position],
                       linear(*part, "reg_start", pooled).sigmoid().squeeze(1)),
            1e-12);
  EXPECT_LT(difference(said[QuestionHeads::end_position],
                       linear(*part, "reg_end", pooled).sigmoid().squeeze(1)),
            1e-12);
}

// bert-base-uncased: 109,482,240 parameters, of which a block has 7,087,872.
TEST(models_bert, has_the_parameters_of_bert_base_under_the_names_of_hugging_face) {
  const BertOptions o;
  BertLayer layer(o);
  std::set<std::string> names;
  int64_t count = 0;
  for (const auto& item : layer.named_parameters()) {
    names.insert(item.key());
    count += item.value().numel();
  }
  std::set<std::string> want;
  for (const char* of : {"attention.self.query", "attention.self.key", "attention.self.value",
                         "attention.output.dense", "attention.output.LayerNorm",
                         "intermediate.dense", "output.dense", "output.LayerNorm"})
    for (const char* end : {".weight", ".bias"}) want.insert(std::string(of) + end);
  EXPECT_EQ(names, want);
  EXPECT_EQ(count, 7'087'872);
  int64_t others = 0;
  for (const auto& p : BertEmbeddings(o).parameters()) others += p.numel();
  for (const auto& p : BertPooler(o).parameters()) others += p.numel();
  EXPECT_EQ(12 * count + others, 109'482'240);
}

TEST(models_bert, begins_as_published_each_parameter_by_its_own_name) {
  BertLayer one(tiny()), same(tiny()), other(tiny());
  init_bert(one, 7, "bert.encoder.layer.0.");
  init_bert(same, 7, "bert.encoder.layer.0.");
  init_bert(other, 7, "bert.encoder.layer.1.");
  const auto a = one.named_parameters(), b = same.named_parameters(), c = other.named_parameters();
  for (const auto& item : a) {
    EXPECT_TRUE(item.value().equal(b[item.key()])) << item.key();
    const bool drawn = item.key().ends_with("weight") && !item.key().ends_with("Norm.weight");
    EXPECT_EQ(item.value().equal(c[item.key()]), !drawn) << item.key();
    if (drawn) {
      EXPECT_NEAR(item.value().std().item<double>(), 0.02, 0.004) << item.key();
    }
  }
}

TEST(models_bert, dropout_follows_the_sample_and_not_its_row) {
  auto part = std::make_shared<BertLayer>(tiny());
  init_bert(*part, 3, "part.");
  name_dropouts(*part);
  const at::Tensor x = at::randn({3, 5, 16}), mask = bert_mask(at::ones({3, 5}, at::kLong));
  const auto run = [&](std::vector<int64_t> samples, const at::Tensor& rows) {
    const RandomScope scope({9, 4, std::move(samples)});
    return part->forward(rows, mask.narrow(0, 0, rows.size(0)));
  };
  const at::Tensor whole = run({5, 6, 7}, x);
  EXPECT_LT(difference(run({7}, x.narrow(0, 2, 1))[0], whole[2]), 1e-5);
  EXPECT_GT(difference(run({8}, x.narrow(0, 2, 1))[0], whole[2]), 1e-3);
}

TEST(models_bert, sizes_and_shapes_that_cannot_be_are_refused) {
  const auto refused = [](auto change) {
    BertOptions o = tiny();
    change(o);
    EXPECT_THROW(BertLayer{o}, UsageError);
  };
  refused([](BertOptions& o) { o.width = 0; });
  refused([](BertOptions& o) { o.heads = 3; });
  refused([](BertOptions& o) { o.dropout = 1; });
  refused([](BertOptions& o) { o.attention_dropout = -0.1; });
  BertEmbeddings part(tiny());
  const at::Tensor ids = at::zeros({1, 13}, at::kLong);
  EXPECT_THROW(part.forward(ids, ids), UsageError);
  EXPECT_THROW(part.forward(ids.narrow(1, 0, 12), ids), UsageError);
}

}  // namespace bert_test
