// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/layers/tensor_parallel/block.h"
#include "trireme/layers/tensor_parallel/cross_entropy.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/recompute/recompute.h"
#include "trireme/tensor/tied_tensors.h"

// The transformer of torch_gpt.py from the tensor-parallel layers, as a user's own loop has it,
// with the same weights and data. Every rank gets its part of the same whole.
namespace trireme::testing {

struct TestGptOptions {
  int64_t kv_heads = 12;
  bool swiglu = false, tied = false;
  double dropout = 0;
  bool recomputed = false;
  int64_t vocab = 29, width = 24, heads = 12, hidden = 50, context = 8, blocks = 2;
};

struct TestGpt : torch::nn::Module {
  TestGpt(const TensorParallel& tp, const TestGptOptions& o)
      : wte(register_module("wte", std::make_shared<VocabParallelEmbedding>(tp, o.vocab, o.width))),
        wpe(register_module("wpe", std::make_shared<ParallelPositions>(tp, o.context, o.width))),
        drop(register_module("drop", Dropout(o.dropout))),
        ln_f(register_module("ln_f", std::make_shared<ParallelLayerNorm>(tp, o.width))),
        tp_(tp),
        options_(o) {
    struct List : torch::nn::Module {};
    auto list = register_module("blocks", std::make_shared<List>());
    for (int64_t i = 0; i < o.blocks; ++i)
      blocks.push_back(list->register_module(
          std::to_string(i), std::make_shared<ParallelBlock>(
                                 tp, ParallelBlockOptions{o.width, o.heads, o.kv_heads, o.hidden,
                                                          o.swiglu, o.dropout})));
    if (!o.tied)
      head =
          register_module("head", std::make_shared<ColumnParallelLinear>(
                                      tp, o.width, o.vocab, ParallelLinearOptions{.bias = false}));
    name_dropouts(*this);
  }

  /// This rank's part of the logits [batch, time, part of vocab].
  at::Tensor logits(const at::Tensor& ids) {
    const int64_t time = ids.size(1);
    at::Tensor x = parallel_dropout(*drop, wpe->forward(wte->forward(ids), time), tp_, time);
    for (const auto& block : blocks) {
      auto compute = [block, time](const at::Tensor& t) { return block->forward(t, time); };
      x = options_.recomputed ? recompute(compute, x, block->parameters()) : compute(x);
    }
    x = ln_f->forward(x);
    return head ? head->forward(x, time) : wte->logits(x, time);
  }
  /// Of each token.
  at::Tensor losses(const at::Tensor& ids, const at::Tensor& target, double smoothing = 0) {
    return vocab_parallel_cross_entropy(
        logits(ids), target, options_.vocab, tp_,
        {.label_smoothing = smoothing, .reduction = LossReduction::none});
  }

  std::shared_ptr<VocabParallelEmbedding> wte;
  std::shared_ptr<ParallelPositions> wpe;
  Dropout drop;
  std::vector<std::shared_ptr<ParallelBlock>> blocks;
  std::shared_ptr<ParallelLayerNorm> ln_f;
  std::shared_ptr<ColumnParallelLinear> head;  // null when tied

 private:
  TensorParallel tp_;
  TestGptOptions options_;
};

/// The whole of parameter number `index` in the order of names: torch_gpt.py's formula().
inline at::Tensor whole_by_formula(const std::string& name, at::IntArrayRef shape, int64_t index) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  const at::Tensor i = at::arange(n, at::kDouble);
  const at::Tensor wave =
      i.mul(0.7).add(i.mul(i).mul(0.011)).add(1.3 * static_cast<double>(index)).sin();
  const auto module = name.substr(0, name.rfind('.'));
  const bool norm = module.substr(module.rfind('.') + 1).starts_with("ln");
  return wave.mul(norm ? 0.1 : 0.25).add(norm && name.ends_with("weight") ? 1.0 : 0.0).view(shape);
}

/// Gives a module its parts of the formula's weights, in `dtype`.
inline void load_formula(torch::nn::Module& module, at::ScalarType dtype = at::kDouble) {
  module.to(dtype);
  at::NoGradGuard no_grad;
  const auto layouts = layouts_of(module);
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, p] : named_parameters(module)) by_name.emplace(name, p);
  int64_t index = 0;
  for (auto& [name, p] : by_name) {
    const auto& layout = layouts.at(name);
    p.copy_(part_of(whole_by_formula(name, layout.shape, index++), layout));
  }
}

struct TokenBatch {
  at::Tensor ids, target, weight;
};
/// torch_gpt.py's batch().
inline TokenBatch batch_by_formula(int64_t step, int64_t batch = 3, int64_t time = 7,
                                   int64_t vocab = 29) {
  const at::Tensor place = at::arange(batch * time, at::kLong).add(1000 * step);
  const at::Tensor square = place.mul(place);
  TokenBatch made{place.mul(7).add(square.mul(3)).remainder(vocab).view({batch, time}),
                  place.mul(5).add(square).add(2).remainder(vocab).view({batch, time}),
                  place.mul(11).add(step).remainder(4).to(at::kDouble).view({batch, time})};
  made.target[step % batch][step % time] = -100;
  return made;
}

/// The loss of the batch: the mean over the weights of tokens that are not ignored.
inline at::Tensor weighted_mean(const at::Tensor& losses, const TokenBatch& batch) {
  const at::Tensor weight = batch.weight.to(losses.scalar_type());
  return losses.mul(weight).sum().div(weight.mul(batch.target.ne(-100)).sum());
}

}  // namespace trireme::testing
