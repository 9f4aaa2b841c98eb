// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/parallel_gpt.h"

#include <string>

#include "trireme/base/check.h"
#include "trireme/models/init.h"
#include "trireme/tensor/recompute/recompute.h"
#include "trireme/tensor/recompute/recompute_plan.h"

namespace trireme {
namespace {

struct Blocks : torch::nn::Module {};

ParallelGptOptions checked_parallel(const ParallelGptOptions& o) {
  check<UsageError>(
      o.layers >= 1 && o.width >= 1 && o.heads >= 1 && o.context >= 1 && o.vocab >= 1,
      "gpt: layers {}, width {}, heads {}, context {}, vocab {}: each must be at least 1", o.layers,
      o.width, o.heads, o.context, o.vocab);
  check<UsageError>(o.dropout >= 0 && o.dropout < 1, "gpt: a dropout of {} is outside [0, 1)",
                    o.dropout);
  return o;
}

}  // namespace

ParallelGpt::ParallelGpt(TensorParallel tp, const ParallelGptOptions& options, uint64_t seed,
                         const UnitMade& unit_made)
    : Model("ParallelGpt"),
      tp_(std::move(tp)),
      options_(checked_parallel(options)),
      wte_(register_module(
          "wte", std::make_shared<VocabParallelEmbedding>(tp_, options.vocab, options.width))),
      wpe_(register_module(
          "wpe", std::make_shared<ParallelPositions>(tp_, options.context, options.width))),
      drop_(register_module("drop", Dropout(options.dropout))) {
  const auto& o = options_;
  init_gpt(*wte_, seed, o.layers, "wte.");
  init_gpt(*wpe_, seed, o.layers, "wpe.");
  auto list = register_module("blocks", std::make_shared<Blocks>());
  const ParallelBlockOptions block{o.width, o.heads, o.kv_heads, o.hidden, o.swiglu, o.dropout};
  for (int64_t i = 0; i < o.layers; ++i) {
    blocks_.push_back(
        list->register_module(std::to_string(i), std::make_shared<ParallelBlock>(tp_, block)));
    const std::string path = "blocks." + std::to_string(i);
    init_gpt(*blocks_.back(), seed, o.layers, path + ".");
    if (unit_made) unit_made(i, path, *blocks_.back());
  }
  ln_f_ = register_module("ln_f", std::make_shared<ParallelLayerNorm>(tp_, o.width));
  if (!o.tied_head)
    head_ =
        register_module("head", std::make_shared<ColumnParallelLinear>(
                                    tp_, o.width, o.vocab, ParallelLinearOptions{.bias = false}));
  init_gpt(*ln_f_, seed, o.layers, "ln_f.");
  if (head_) init_gpt(*head_, seed, o.layers, "head.");
  recompute_ = every_kth(o.layers, o.recompute_every);
  name_dropouts(*this);
}

void ParallelGpt::set_recompute(std::vector<bool> blocks) {
  check<UsageError>(blocks.size() == blocks_.size(),
                    "gpt: recomputation is chosen for {} blocks, and there are {}", blocks.size(),
                    blocks_.size());
  recompute_ = std::move(blocks);
}

at::Tensor ParallelGpt::forward(const at::Tensor& input) {
  check<UsageError>(input.dim() == 2 && input.size(1) >= 1 && input.size(1) <= options_.context,
                    "gpt: the input must be [b, t] with 1 <= t <= {}, the model's context",
                    options_.context);
  const int64_t time = input.size(1);
  at::Tensor x = parallel_dropout(*drop_, wpe_->forward(wte_->forward(input), time), tp_, time);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto& block = blocks_[i];
    auto compute = [&block, time, again = recompute_[i]](const at::Tensor& in) {
      if (!again) return block->forward(in, time);
      return recompute([block, time](const at::Tensor& t) { return block->forward(t, time); }, in,
                       block->parameters());
    };
    x = run_unit(static_cast<int64_t>(i), compute, x);
  }
  x = ln_f_->forward(x);
  return head_ ? head_->forward(x, time) : wte_->logits(x, time);
}

at::Tensor ParallelGpt::loss_sum(const at::Tensor& output, const at::Tensor& target) {
  return vocab_parallel_cross_entropy(output, target, options_.vocab, tp_,
                                      {.reduction = LossReduction::sum});
}

at::Tensor ParallelGpt::count_right(const at::Tensor& output, const at::Tensor& target) {
  return vocab_parallel_argmax(output, options_.vocab, tp_).eq(target).sum();
}

}  // namespace trireme
