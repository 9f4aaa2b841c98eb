// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/train/programs.h"
#include "trireme/layers/tensor_parallel/block.h"
#include "trireme/layers/tensor_parallel/cross_entropy.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/train/program/chain_program.h"

// Programs whose layers are divided over ranks.
namespace trireme::testing {

constexpr int64_t kWords = 30, kPositions = 9, kWide = 24;  // 9 and 30 do not divide evenly

/// Sequences of words, each word with a weight of its own.
struct Sequences final : DataSource {
  explicit Sequences(int64_t n, int64_t shift) : count(n), first(shift) {}
  int64_t size() const override { return count; }
  std::string describe() const override { return "sequences"; }
  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const at::Tensor n = torch::tensor(ids, torch::kLong).unsqueeze(1) + first;
    const at::Tensor at = torch::arange(kPositions + 1);
    const at::Tensor words = (n * 7 + at * (n % 5 + 1)) % kWords;
    MicroBatch b;
    b.input = words.narrow(1, 0, kPositions).contiguous();
    b.target = words.narrow(1, 1, kPositions).contiguous();
    const at::Tensor weights = (n + at.narrow(0, 0, kPositions)) % 4;  // some of them are 0
    b.more = {{"weights", weights.to(torch::kFloat)}};
    b.weight = weights.sum().item<int64_t>();
    b.samples = ids;
    return b;
  }
  const int64_t count, first;
};

struct WordsInImpl : torch::nn::Module {
  explicit WordsInImpl(const TensorParallel& tp)
      : words(
            register_module("words", std::make_shared<VocabParallelEmbedding>(tp, kWords, kWide))),
        positions(register_module("positions",
                                  std::make_shared<ParallelPositions>(tp, kPositions, kWide))) {}
  at::Tensor forward(const at::Tensor& ids) {
    return positions->forward(words->forward(ids), ids.size(1));
  }
  std::shared_ptr<VocabParallelEmbedding> words;
  std::shared_ptr<ParallelPositions> positions;
};
TORCH_MODULE(WordsIn);

/// A block that is told how many positions there are, which a part of them does not say.
struct ToldBlockImpl : torch::nn::Module {
  ToldBlockImpl(const TensorParallel& tp, const ParallelBlockOptions& options)
      : block(register_module("block", std::make_shared<ParallelBlock>(tp, options))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& ids) {
    return block->forward(x, ids.size(1));
  }
  std::shared_ptr<ParallelBlock> block;
};
TORCH_MODULE(ToldBlock);

struct WordsOutImpl : torch::nn::Module {
  explicit WordsOutImpl(const TensorParallel& tp)
      : norm(register_module("norm", std::make_shared<ParallelLayerNorm>(tp, kWide))),
        head(register_module("head",
                             std::make_shared<ColumnParallelLinear>(
                                 tp, kWide, kWords, ParallelLinearOptions{.bias = false}))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& ids) {
    return head->forward(norm->forward(x), ids.size(1));
  }
  std::shared_ptr<ParallelLayerNorm> norm;
  std::shared_ptr<ColumnParallelLinear> head;
};
TORCH_MODULE(WordsOut);

/// A decoder, with fewer key/value heads than ranks, so that ranks share them.
struct WordsProgram : ChainProgram {
  virtual ParallelBlockOptions block() const {
    return {.width = kWide, .heads = 4, .kv_heads = 1, .dropout = 0.1};
  }
  Pieces make_divided(const Config&, const TensorParallel& tp) override {
    tp_ = tp;
    Pieces all{piece("in", [tp] { return WordsIn(tp); })};
    for (int i = 0; i < 4; ++i)
      all.push_back(piece("blocks." + std::to_string(i),
                          [tp, options = block()] { return ToldBlock(tp, options); }));
    all.push_back(piece("out", [tp] { return WordsOut(tp); }));
    return all;
  }
  Sources data(const Config&) override {
    return {std::make_shared<Sequences>(256, 0), std::make_shared<Sequences>(25, 1000),
            "sequences 256"};
  }
  Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                    const MicroBatch& b) override {
    Tensors all = inputs;
    if (path != "in") all.push_back(b.input);
    return net.run_list(path, all);
  }
  LossTerms loss_of(const Tensors& outputs, const MicroBatch& b) override {
    const at::Tensor each = vocab_parallel_cross_entropy(outputs.at(0), b.target, kWords, *tp_,
                                                         {.reduction = LossReduction::none});
    return {{"loss", (each * b.tensor("weights")).sum()}};
  }
  std::optional<TensorParallel> tp_;
};

/// LibTorch's own layers beside divided ones, with running statistics.
struct MixedImpl : torch::nn::Module {
  MixedImpl(const TensorParallel& tp, int64_t in, int64_t width)
      : stem(register_module("stem", torch::nn::Linear(in, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        mlp(register_module("mlp", std::make_shared<ParallelGeluMlp>(tp, width, 3 * width))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = norm(stem(x.flatten(1)));
    return h + mlp->forward(h);
  }
  torch::nn::Linear stem;
  torch::nn::BatchNorm1d norm;
  std::shared_ptr<ParallelGeluMlp> mlp;
};
TORCH_MODULE(Mixed);

/// Two updates, and a piece that is not trained.
struct MixedProgram : Program {
  Pieces make_divided(const Config&, const TensorParallel& tp) override {
    return {piece("body", [tp] { return Mixed(tp, 784, 21); }),
            piece("fixed", [tp] { return Mixed(tp, 21, 21); }),
            piece("head", [tp] { return std::make_shared<ParallelGeluMlp>(tp, 21, 10); }),
            piece("top", [] { return torch::nn::Linear(21, 10); })};
  }
  std::vector<Update> updates(const Config&) override {
    return {{"body", {"body"}, {"optimizer.params.lr=0.02"}}, {"rest", {"head", "top"}}};
  }
  Sources data(const Config&) override {
    return {make_digits({256, 42, "train"}), make_digits({50, 42, "validation"}), "digits 256"};
  }
  LossTerms loss(Network& net, const MicroBatch& b) override {
    const at::Tensor h = net.run("fixed", net.run("body", b.input));
    return {{"loss", cross_entropy_sum(net.run("top", net.run("head", h)), b.target)}};
  }
  void step(Trainer& t) override {
    const Batch batch = t.next_batch();
    t.update("body", batch);
    t.update("rest", batch);
  }
};

}  // namespace trireme::testing
