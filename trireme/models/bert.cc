// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/bert.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>

#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/tensor/random/random.h"

namespace trireme {
namespace {

struct Holder : torch::nn::Module {};  // of parts under a name

std::shared_ptr<Linear> linear(torch::nn::Module& at, int64_t in, int64_t out) {
  return at.register_module("dense", std::make_shared<Linear>(in, out));
}

std::shared_ptr<LayerNorm> norm_of(torch::nn::Module& at, const BertOptions& o) {
  return at.register_module("LayerNorm", std::make_shared<LayerNorm>(o.width, o.epsilon));
}

const BertOptions& checked(const BertOptions& o) {
  o.check();
  return o;
}

}  // namespace

void BertOptions::check() const {
  trireme::check<UsageError>(
      vocab >= 1 && width >= 1 && layers >= 1 && heads >= 1 && inner >= 1 && positions >= 1 &&
          types >= 1,
      "bert: vocabulary {}, width {}, layers {}, heads {}, inner width {}, positions {}, types {}: "
      "each must be at least 1",
      vocab, width, layers, heads, inner, positions, types);
  trireme::check<UsageError>(width % heads == 0,
                             "bert: a width of {} does not divide into {} heads: choose a multiple",
                             width, heads);
  for (const double p : {dropout, attention_dropout})
    trireme::check<UsageError>(p >= 0 && p < 1, "bert: a dropout of {} is outside [0, 1)", p);
}

at::Tensor bert_mask(const at::Tensor& attention_mask) {
  return attention_mask.eq(0).to(at::kFloat).mul_(-10000.0).unsqueeze(1).unsqueeze(1);
}

BertEmbeddings::BertEmbeddings(const BertOptions& o)
    : words(register_module("word_embeddings",
                            std::make_shared<Embedding>(checked(o).vocab, o.width))),
      positions(register_module("position_embeddings",
                                std::make_shared<Embedding>(o.positions, o.width))),
      types(
          register_module("token_type_embeddings", std::make_shared<Embedding>(o.types, o.width))),
      norm(norm_of(*this, o)),
      drop(register_module("dropout", Dropout(o.dropout))) {}

at::Tensor BertEmbeddings::forward(const at::Tensor& ids, const at::Tensor& token_types) {
  const int64_t longest = positions->weight.size(0);
  check<UsageError>(ids.dim() == 2 && ids.size(1) >= 1 && ids.size(1) <= longest,
                    "bert: ids must be [b, t] with 1 <= t <= {}, the model's positions", longest);
  check<UsageError>(token_types.sizes() == ids.sizes(),
                    "bert: token types must have the shape of the ids");
  const at::Tensor x = words->forward(ids)
                           .add(types->forward(token_types))
                           .add(positions->weight.narrow(0, 0, ids.size(1)));
  return drop->forward(norm->forward(x));
}

BertLayer::BertLayer(const BertOptions& o) : heads_(checked(o).heads) {
  auto attention = register_module("attention", std::make_shared<Holder>());
  auto self = attention->register_module("self", std::make_shared<Holder>());
  query_ = self->register_module("query", std::make_shared<Linear>(o.width, o.width));
  key_ = self->register_module("key", std::make_shared<Linear>(o.width, o.width));
  value_ = self->register_module("value", std::make_shared<Linear>(o.width, o.width));
  drop_scores_ = self->register_module("dropout", Dropout(o.attention_dropout));
  auto attended = attention->register_module("output", std::make_shared<Holder>());
  attended_ = linear(*attended, o.width, o.width);
  attention_norm_ = norm_of(*attended, o);
  drop_attended_ = attended->register_module("dropout", Dropout(o.dropout));
  up_ = linear(*register_module("intermediate", std::make_shared<Holder>()), o.width, o.inner);
  auto output = register_module("output", std::make_shared<Holder>());
  down_ = linear(*output, o.inner, o.width);
  norm_ = norm_of(*output, o);
  drop_ = output->register_module("dropout", Dropout(o.dropout));
}

at::Tensor BertLayer::attend(const at::Tensor& x, const at::Tensor& mask) {
  const int64_t b = x.size(0), t = x.size(1), of_head = x.size(2) / heads_;
  const auto heads = [&](const at::Tensor& y) {
    return y.view({b, t, heads_, of_head}).transpose(1, 2);
  };
  const at::Tensor q = heads(query_->forward(x)).mul(1 / std::sqrt(static_cast<double>(of_head)));
  const at::Tensor scores =
      at::matmul(q, heads(key_->forward(x)).transpose(2, 3)).add(mask).softmax(-1);
  const at::Tensor y = at::matmul(drop_scores_->forward(scores), heads(value_->forward(x)));
  return y.transpose(1, 2).reshape({b, t, heads_ * of_head});
}

at::Tensor BertLayer::forward(const at::Tensor& x, const at::Tensor& mask) {
  const at::Tensor attended = drop_attended_->forward(attended_->forward(attend(x, mask)));
  const at::Tensor y = attention_norm_->forward(attended.add(x));
  const at::Tensor z = drop_->forward(down_->forward(at::gelu(up_->forward(y))));
  return norm_->forward(z.add(y));
}

BertPooler::BertPooler(const BertOptions& o) : dense(linear(*this, checked(o).width, o.width)) {}

at::Tensor BertPooler::forward(const at::Tensor& hidden) {
  return dense->forward(hidden.select(1, 0)).tanh();
}

QuestionHeads::QuestionHeads(const BertOptions& o, int64_t answer_classes)
    : positions(register_module("position_outputs", std::make_shared<Linear>(checked(o).width, 2))),
      classifier(register_module("classifier", std::make_shared<Linear>(o.width, answer_classes))),
      reg_start(register_module("reg_start", std::make_shared<Linear>(o.width, 1))),
      reg_end(register_module("reg_end", std::make_shared<Linear>(o.width, 1))) {}

std::vector<at::Tensor> QuestionHeads::forward(const at::Tensor& hidden, const at::Tensor& pooled) {
  const at::Tensor both = positions->forward(hidden);
  return {both.select(-1, 0), both.select(-1, 1), classifier->forward(pooled),
          reg_start->forward(pooled).squeeze(-1).sigmoid(),
          reg_end->forward(pooled).squeeze(-1).sigmoid()};
}

void init_bert(torch::nn::Module& part, uint64_t seed, const std::string& path) {
  const at::NoGradGuard no_grad;
  for (const auto& item : part.named_parameters()) {
    const std::string name = path + item.key();
    at::Tensor p = item.value();
    if (name.ends_with("bias"))
      p.zero_();
    else if (name.ends_with("LayerNorm.weight"))
      p.fill_(1);
    else
      normal_(p, stable_hash({seed, stable_hash(name)}), 0, 0.02);
  }
}

}  // namespace trireme
