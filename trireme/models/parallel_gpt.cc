// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/parallel_gpt.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <string>

#include "trireme/base/check.h"
#include "trireme/layers/documents.h"
#include "trireme/models/init.h"
#include "trireme/tensor/recompute/recompute.h"
#include "trireme/tensor/recompute/recompute_plan.h"

namespace trireme {
namespace {

struct Blocks : torch::nn::Module {};

constexpr int64_t kUncounted = -100;  // a target that does not count

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
                         const UnitMade& unit_made, ContextParallel cp)
    : Model("ParallelGpt"),
      tp_(std::move(tp)),
      cp_(std::move(cp)),
      options_(checked_parallel(options)),
      stages_(options_) {
  const auto& o = options_;
  if (stages_.has_first() || (stages_.has_last() && o.tied_head)) {
    wte_ = register_module("wte", std::make_shared<VocabParallelEmbedding>(tp_, o.vocab, o.width));
    init_gpt(*wte_, seed, o.layers, "wte.");
  }
  if (stages_.has_first()) {
    wpe_ = register_module("wpe", std::make_shared<ParallelPositions>(tp_, o.context, o.width));
    init_gpt(*wpe_, seed, o.layers, "wpe.");
    drop_ = register_module("drop", Dropout(o.dropout));
  }
  auto list = register_module("blocks", std::make_shared<Blocks>());
  const ParallelBlockOptions block{o.width, o.heads, o.kv_heads, o.hidden, o.swiglu, o.dropout};
  for (const int64_t i : stages_.blocks()) {
    const std::string path = "blocks." + std::to_string(i);
    blocks_.push_back(
        list->register_module(std::to_string(i), std::make_shared<ParallelBlock>(tp_, block, cp_)));
    init_gpt(*blocks_.back(), seed, o.layers, path + ".");
    if (unit_made) unit_made(blocks() - 1, path, *blocks_.back());
  }
  if (stages_.has_last()) {
    ln_f_ = register_module("ln_f", std::make_shared<ParallelLayerNorm>(tp_, o.width));
    init_gpt(*ln_f_, seed, o.layers, "ln_f.");
    if (!o.tied_head) {
      head_ =
          register_module("head", std::make_shared<ColumnParallelLinear>(
                                      tp_, o.width, o.vocab, ParallelLinearOptions{.bias = false}));
      init_gpt(*head_, seed, o.layers, "head.");
    } else if (stages_.has_ends_apart()) {
      copy_ = register_module(kCopyOfEmbedding,
                              std::make_shared<VocabParallelEmbedding>(tp_, o.vocab, o.width));
      init_gpt(*copy_, seed, o.layers, "wte.");
    }
  }
  recompute_ = every_kth(blocks(), o.recompute_every);
  name_dropouts(*this);
}

void ParallelGpt::set_recompute(std::vector<bool> blocks) {
  check<UsageError>(blocks.size() == blocks_.size(),
                    "gpt: recomputation is chosen for {} blocks, and there are {}", blocks.size(),
                    blocks_.size());
  recompute_ = std::move(blocks);
}

std::map<std::string, std::string> ParallelGpt::copies() const {
  if (!copy_) return {};
  return {{std::string(kCopyOfEmbedding) + ".weight", "wte.weight"}};
}

// Rows that are shorter than there are ranks: places are added behind them, which nothing before
// them sees and which do not count, so that each rank has some.
at::Tensor ParallelGpt::long_enough(const at::Tensor& rows, int64_t value) const {
  if (cp_.size() == 1) return rows;
  const int64_t parts = tp_.sequence_parallel() ? tp_.size() : 1;
  const int64_t missing = std::min(cp_.size() * parts, options_.context) - rows.size(1);
  return missing > 0 ? at::constant_pad_nd(rows, {0, missing}, value) : rows;
}

void ParallelGpt::select_stage(size_t stage) { stages_.select(stage); }

at::Tensor ParallelGpt::forward(const at::Tensor& input) {
  check<UsageError>(stages_.is_whole(),
                    "gpt: this rank has stages of the network, which forward_list() computes");
  return forward_list({input})[0];
}

// The micro-batch's ids are the last input of every stage: how many positions there are, and where
// documents start, is not to be seen from a part of them.
std::vector<at::Tensor> ParallelGpt::forward_list(const std::vector<at::Tensor>& inputs) {
  const pipeline::StageBlocks& stage = stages_.selected();
  const size_t wanted = stage.first ? 1 : 2;
  check<UsageError>(inputs.size() == wanted, "gpt: a stage that takes {} inputs was given {}",
                    wanted, inputs.size());
  at::Tensor ids = inputs.back();
  check<UsageError>(ids.dim() == 2 && ids.size(1) >= 1 && ids.size(1) <= options_.context,
                    "gpt: the input must be [b, t] with 1 <= t <= {}, the model's context",
                    options_.context);
  ids = long_enough(ids, 0);
  const int64_t time = ids.size(1);
  at::Tensor x = inputs[0], starts, places;
  if (options_.end_of_document) {
    starts = document_starts(ids, *options_.end_of_document);
    places = cp_.own(positions_in_documents(starts));
  } else if (cp_.size() > 1) {
    places = cp_.places(time, ids.device()).unsqueeze(0);
  }
  const int64_t own = cp_.size() == 1 ? time : cp_.length(time);
  if (stage.first)
    x = parallel_dropout(*drop_, wpe_->forward(wte_->forward(cp_.own(ids)), own, places), tp_, time,
                         cp_);
  for (size_t i = stages_.begin(); i < stages_.end(); ++i) {
    const auto& block = blocks_[i];
    auto compute = [&block, &starts, time, again = recompute_[i]](const at::Tensor& in) {
      if (!again) return block->forward(in, time, starts);
      return recompute(
          [block, starts, time](const at::Tensor& t) { return block->forward(t, time, starts); },
          in, block->parameters());
    };
    x = run_unit(static_cast<int64_t>(i), compute, x);
  }
  if (!stage.last) return {x};
  x = ln_f_->forward(x);
  return {head_ ? head_->forward(x, own) : (copy_ ? copy_ : wte_)->logits(x, own)};
}

at::Tensor ParallelGpt::loss_sum(const at::Tensor& output, const at::Tensor& target) {
  return vocab_parallel_cross_entropy(output, cp_.own(long_enough(target, kUncounted)),
                                      options_.vocab, tp_, {.reduction = LossReduction::sum});
}

at::Tensor ParallelGpt::count_right(const at::Tensor& output, const at::Tensor& target) {
  return vocab_parallel_argmax(output, options_.vocab, tp_)
      .eq(cp_.own(long_enough(target, kUncounted)))
      .sum();
}

}  // namespace trireme
