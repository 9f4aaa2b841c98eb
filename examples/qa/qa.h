// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <trireme/trireme.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "qa_keys.h"

/// BERT reads a question and a part of a document, and five heads say where the answer is and of
/// which class.
class Qa : public trireme::Program {
 public:
  void keys(trireme::KeyTable& table) override { table.add<QaSection>(); }

  Pieces make(const trireme::Config& config) override {
    using namespace trireme;
    qa_ = config.section<QaSection>();
    const BertOptions o = encoder();
    const auto seed = static_cast<uint64_t>(config.get_int("training.seed"));
    Pieces all{part<BertEmbeddings>("bert.embeddings", o, seed, 0.1)};
    for (int64_t i = 0; i < o.layers; ++i) all.push_back(part<BertLayer>(layer(i), o, seed, 1));
    all.push_back(part<BertPooler>("bert.pooler", o, seed, 0.01));
    all.push_back(part<QuestionHeads>("heads", o, seed, 0.01));
    return all;
  }

  trireme::Sources data(const trireme::Config& config) override;
  std::vector<trireme::Update> updates(const trireme::Config& config) override;

  trireme::LossTerms loss(trireme::Network& net, const trireme::MicroBatch& b) override {
    return terms(answers(net, b), b);
  }
  trireme::TermWeights weights(const trireme::MicroBatch& b) override {
    const auto count = [&](const char* name) {
      return static_cast<double>(trireme::rows_that_count(b.tensor(name)));
    };
    return {{"start", count("start_ids")},
            {"end", count("end_ids")},
            {"start_reg", count("start_positions")},
            {"end_reg", count("end_positions")},
            {"cls", count("classes")}};
  }

  void evaluate(trireme::Network& net, const trireme::MicroBatch& b,
                trireme::HeldOutSums& sums) override {
    using Heads = trireme::QuestionHeads;
    const std::vector<at::Tensor> said = answers(net, b);
    add_terms(terms(said, b), b, sums);
    if (!sums.counts()) return;
    for (auto& chunk :
         trireme::predict_chunks(b, said[Heads::start], said[Heads::end], said[Heads::classes]))
      predictions_.push_back(chunk);
  }
  /// The figures of the recipe's callbacks, over all ranks' chunks.
  void evaluated(trireme::HeldOutSums& sums, trireme::Group group) override;

 private:
  template <class Part>
  static trireme::Piece part(std::string path, const trireme::BertOptions& o, uint64_t seed,
                             double cost) {
    auto make = [path, o, seed] {
      auto made = std::make_shared<Part>(o);
      trireme::init_bert(*made, seed, path + ".");
      return made;
    };
    return trireme::piece(std::move(path), make, cost);
  }
  static std::string layer(int64_t i) { return "bert.encoder.layer." + std::to_string(i); }
  trireme::BertOptions encoder() const {
    trireme::BertOptions o;
    o.vocab = qa_.vocab_size, o.width = qa_.hidden_size, o.layers = qa_.num_hidden_layers;
    o.heads = qa_.num_attention_heads, o.inner = qa_.intermediate_size;
    o.positions = qa_.max_position_embeddings;
    o.dropout = qa_.hidden_dropout_prob;
    o.attention_dropout = qa_.attention_probs_dropout_prob;
    return o;
  }

  std::vector<at::Tensor> answers(trireme::Network& net, const trireme::MicroBatch& b) const {
    const at::Tensor mask = trireme::bert_mask(b.tensor("attention_mask"));
    at::Tensor x = net.run("bert.embeddings", b.input, b.tensor("token_types"));
    for (int64_t i = 0; i < qa_.num_hidden_layers; ++i) x = net.run(layer(i), x, mask);
    return net.run_list("heads", {x, net.run("bert.pooler", x)});
  }
  trireme::LossTerms terms(const std::vector<at::Tensor>& said,
                           const trireme::MicroBatch& b) const {
    using namespace trireme;
    using Heads = QuestionHeads;
    return {
        {"start", qa_.w_start * cross_entropy_of_rows(said[Heads::start], b.tensor("start_ids"))},
        {"end", qa_.w_end * cross_entropy_of_rows(said[Heads::end], b.tensor("end_ids"))},
        {"start_reg", qa_.w_start_reg * squared_error_of_rows(said[Heads::start_position],
                                                              b.tensor("start_positions"))},
        {"end_reg", qa_.w_end_reg * squared_error_of_rows(said[Heads::end_position],
                                                          b.tensor("end_positions"))},
        {"cls", qa_.w_cls * class_loss(said[Heads::classes], b.tensor("classes"))}};
  }
  at::Tensor class_loss(const at::Tensor& logits, const at::Tensor& classes) const {
    if (qa_.loss == "focal") return trireme::focal_loss_of_rows(logits, classes, qa_.focal_gamma);
    if (qa_.loss == "smooth")
      return trireme::smoothed_cross_entropy_of_rows(logits, classes, qa_.smooth_alpha);
    return trireme::cross_entropy_of_rows(logits, classes);
  }

  QaSection qa_;
  int64_t train_size_ = 0;
  std::shared_ptr<const trireme::QuestionSource> held_out_;  // null: drawn questions
  std::vector<trireme::ChunkPrediction> predictions_;        // of this rank, in this evaluation
};
