// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/plain.h"

// BERT's encoder (Devlin et al. 2018), in parts that a Program makes its pieces of: an embedding,
// post-norm blocks, a pooler, and the five heads of the question-answering recipe. Parameters have
// Hugging Face's names behind the paths "bert.embeddings", "bert.encoder.layer.N" and
// "bert.pooler", so that published weights load by name (interop/weights/bert_names.h).
// Dropout is keyed by sample (layers/dropout.h). One thread at a time.
namespace trireme {

/// Those of bert-base-uncased.
struct TRIREME_API BertOptions {
  int64_t vocab = 30522;
  int64_t width = 768;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t inner = 3072;     // units between the two layers of a feed-forward net
  int64_t positions = 512;  // the longest sequence
  int64_t types = 2;        // of tokens: question, document
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double epsilon = 1e-12;  // of LayerNorm

  /// Throws UsageError for sizes below 1, heads that do not divide the width, and dropout outside
  /// [0, 1).
  void check() const;
};

/// What attention adds to its scores: 0 where `attention_mask` [b, t] is not 0, else −10000, as
/// published. [b, 1, 1, t], float32.
TRIREME_API at::Tensor bert_mask(const at::Tensor& attention_mask);

/// word_embeddings, position_embeddings, token_type_embeddings, LayerNorm.
struct TRIREME_API BertEmbeddings : torch::nn::Module {
  explicit BertEmbeddings(const BertOptions& options);
  /// ids, types: [b, t] int64, t <= positions. Returns [b, t, width]. UsageError for another shape.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types);
  std::shared_ptr<Embedding> words, positions, types;
  std::shared_ptr<LayerNorm> norm;
  Dropout drop{nullptr};
};

/// attention.self.{query, key, value}, attention.output.{dense, LayerNorm}, intermediate.dense,
/// output.{dense, LayerNorm}: x = norm(x + attention(x)), x = norm(x + feed_forward(x)), with GELU
/// in its exact form.
struct TRIREME_API BertLayer : torch::nn::Module {
  explicit BertLayer(const BertOptions& options);
  /// x: [b, t, width]; mask: bert_mask()'s. Returns [b, t, width].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  at::Tensor attend(const at::Tensor& x, const at::Tensor& mask);
  int64_t heads_;
  std::shared_ptr<Linear> query_, key_, value_, attended_, up_, down_;
  std::shared_ptr<LayerNorm> attention_norm_, norm_;
  Dropout drop_scores_{nullptr}, drop_attended_{nullptr}, drop_{nullptr};
};

/// dense: tanh of a linear layer on the first position. [b, t, width] → [b, width].
struct TRIREME_API BertPooler : torch::nn::Module {
  explicit BertPooler(const BertOptions& options);
  at::Tensor forward(const at::Tensor& hidden);
  std::shared_ptr<Linear> dense;
};

/// The recipe's heads: position_outputs (start and end), classifier, reg_start, reg_end.
struct TRIREME_API QuestionHeads : torch::nn::Module {
  enum Output : size_t { start, end, classes, start_position, end_position };
  explicit QuestionHeads(const BertOptions& options, int64_t answer_classes = 5);
  /// Takes [b, t, width] and the pooled [b, width]; returns, in Output's order, the logits of
  /// start and end [b, t], of the classes [b, answer_classes], and the positions of start and end
  /// as shares of the sequence [b], each in (0, 1).
  std::vector<at::Tensor> forward(const at::Tensor& hidden, const at::Tensor& pooled);
  std::shared_ptr<Linear> positions, classifier, reg_start, reg_end;
};

/// As BERT begins: weights normal with deviation 0.02, biases 0, norms 1. Each parameter is a
/// function of the seed and its name behind `path`.
TRIREME_API void init_bert(torch::nn::Module& part, uint64_t seed, const std::string& path);

}  // namespace trireme
