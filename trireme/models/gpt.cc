// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/gpt.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <string>

#include "trireme/base/check.h"
#include "trireme/layers/bias_gelu.h"
#include "trireme/layers/documents.h"
#include "trireme/layers/half_attention.h"
#include "trireme/models/init.h"
#include "trireme/tensor/recompute/recompute.h"
#include "trireme/tensor/recompute/recompute_plan.h"

namespace trireme {
namespace {

struct Attention : torch::nn::Module, AttendsHalf {
  Attention(const GptOptions& o)
      : heads(o.heads),
        qkv(register_module("qkv", std::make_shared<Linear>(o.width, 3 * o.width))),
        proj(register_module("proj", std::make_shared<Linear>(o.width, o.width))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& starts) {
    return proj->forward(attend(qkv->forward(x), heads, starts));
  }
  int64_t heads;
  std::shared_ptr<Linear> qkv, proj;
};

struct FeedForward : torch::nn::Module {
  FeedForward(const GptOptions& o)
      : up(register_module("up", std::make_shared<Linear>(o.width, 4 * o.width))),
        down(register_module("down", std::make_shared<Linear>(4 * o.width, o.width))) {}
  at::Tensor forward(const at::Tensor& x) {
    // The bias of `up` rides in the GELU's pass.
    return down->forward(bias_gelu(up->product(x), up->bias));
  }
  std::shared_ptr<Linear> up, down;
};

struct List : torch::nn::Module {};

GptOptions checked(const GptOptions& o) {
  check<UsageError>(
      o.layers >= 1 && o.width >= 1 && o.heads >= 1 && o.context >= 1 && o.vocab >= 1,
      "gpt: layers {}, width {}, heads {}, context {}, vocab {}: each must be at least 1", o.layers,
      o.width, o.heads, o.context, o.vocab);
  check<UsageError>(o.width % o.heads == 0,
                    "gpt: a width of {} does not divide into {} heads: choose a multiple", o.width,
                    o.heads);
  check<UsageError>(o.dropout >= 0 && o.dropout < 1, "gpt: a dropout of {} is outside [0, 1)",
                    o.dropout);
  return o;
}

}  // namespace

struct GptBlock : torch::nn::Module {
  explicit GptBlock(const GptOptions& o)
      : ln1(register_module("ln1", std::make_shared<LayerNorm>(o.width))),
        ln2(register_module("ln2", std::make_shared<LayerNorm>(o.width))),
        attn(register_module("attn", std::make_shared<Attention>(o))),
        mlp(register_module("mlp", std::make_shared<FeedForward>(o))),
        drop1(register_module("drop1", Dropout(o.dropout))),
        drop2(register_module("drop2", Dropout(o.dropout))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& starts) {
    auto y = x.add(drop1->forward(attn->forward(ln1->forward(x), starts)));
    return y.add(drop2->forward(mlp->forward(ln2->forward(y))));
  }
  std::shared_ptr<LayerNorm> ln1, ln2;
  std::shared_ptr<Attention> attn;
  std::shared_ptr<FeedForward> mlp;
  Dropout drop1, drop2;
};

Gpt::Gpt(const GptOptions& options, uint64_t seed, const UnitMade& unit_made)
    : Model("Gpt"), options_(checked(options)), stages_(options_) {
  const int64_t layers = options.layers;
  if (stages_.has_first() || (stages_.has_last() && options.tied_head)) {
    wte_ = register_module("wte", std::make_shared<Embedding>(options.vocab, options.width));
    init_gpt(*wte_, seed, layers, "wte.");
  }
  if (stages_.has_first()) {
    wpe_ = register_module("wpe", std::make_shared<Embedding>(options.context, options.width));
    init_gpt(*wpe_, seed, layers, "wpe.");
    drop_ = register_module("drop", Dropout(options.dropout));
  }
  auto list = register_module("blocks", std::make_shared<List>());
  for (const int64_t i : stages_.blocks()) {
    const std::string path = "blocks." + std::to_string(i);
    blocks_.push_back(
        list->register_module(std::to_string(i), std::make_shared<GptBlock>(options)));
    init_gpt(*blocks_.back(), seed, layers, path + ".");
    if (unit_made) unit_made(blocks() - 1, path, *blocks_.back());
  }
  if (stages_.has_last()) {
    ln_f_ = register_module("ln_f", std::make_shared<LayerNorm>(options.width));
    init_gpt(*ln_f_, seed, layers, "ln_f.");
    if (!options.tied_head) {
      head_ =
          register_module("head", std::make_shared<Linear>(options.width, options.vocab, false));
      init_gpt(*head_, seed, layers, "head.");
    } else if (stages_.has_ends_apart()) {
      head_ = register_module(kCopyOfEmbedding,
                              std::make_shared<Linear>(options.width, options.vocab, false));
      init_gpt(*head_, seed, layers, "wte.");
    }
  }
  recompute_ = every_kth(blocks(), options.recompute_every);
  name_dropouts(*this);
}

void Gpt::set_recompute(std::vector<bool> blocks) {
  check<UsageError>(blocks.size() == blocks_.size(),
                    "gpt: recomputation is chosen for {} blocks, and there are {}", blocks.size(),
                    blocks_.size());
  recompute_ = std::move(blocks);
}

std::map<std::string, std::string> Gpt::copies() const {
  if (!options_.tied_head || !stages_.has_ends_apart()) return {};
  return {{std::string(kCopyOfEmbedding) + ".weight", "wte.weight"}};
}

void Gpt::select_stage(size_t stage) { stages_.select(stage); }

at::Tensor Gpt::starts_of(const at::Tensor& ids) const {
  return options_.end_of_document ? document_starts(ids, *options_.end_of_document) : at::Tensor();
}

at::Tensor Gpt::embed(const at::Tensor& input, const at::Tensor& starts) {
  check<UsageError>(input.dim() == 2 && input.size(1) >= 1 && input.size(1) <= options_.context,
                    "gpt: the input must be [b, t] with 1 <= t <= {}, the model's context",
                    options_.context);
  if (starts.defined())
    return drop_->forward(wte_->forward(input).add(wpe_->forward(positions_in_documents(starts))));
  return drop_->forward(wte_->forward(input).add(wpe_->weight.narrow(0, 0, input.size(1))));
}

at::Tensor Gpt::run_blocks(at::Tensor x, const at::Tensor& starts) {
  for (size_t i = stages_.begin(); i < stages_.end(); ++i) {
    const auto& block = blocks_[i];
    auto compute = [&block, &starts, again = recompute_[i]](const at::Tensor& in) {
      if (!again) return block->forward(in, starts);
      return recompute([block, starts](const at::Tensor& t) { return block->forward(t, starts); },
                       in, block->parameters());
    };
    x = run_unit(static_cast<int64_t>(i), compute, x);
  }
  return x;
}

at::Tensor Gpt::hidden(const at::Tensor& input) {
  check<UsageError>(stages_.is_whole(),
                    "gpt: this rank has stages of the network, which forward_list() computes");
  const at::Tensor starts = starts_of(input);
  return run_blocks(embed(input, starts), starts);
}

std::vector<at::Tensor> Gpt::forward_list(const std::vector<at::Tensor>& inputs) {
  const pipeline::StageBlocks& stage = stages_.selected();
  const size_t wanted = stage.first ? 1 : 2;
  check<UsageError>(inputs.size() == wanted, "gpt: a stage that takes {} inputs was given {}",
                    wanted, inputs.size());
  const at::Tensor starts = starts_of(inputs.back());
  const at::Tensor x = run_blocks(stage.first ? embed(inputs[0], starts) : inputs[0], starts);
  return {stage.last ? logits(x) : x};
}

at::Tensor Gpt::logits(const at::Tensor& x) const {
  return linear_rows(ln_f_->forward(x), head_ ? head_->weight : wte_->weight);
}

at::Tensor Gpt::forward(const at::Tensor& input) { return logits(hidden(input)); }

at::Tensor Gpt::next_logits(const at::Tensor& input) {
  return logits(hidden(input).select(1, input.size(1) - 1));
}

at::Tensor Gpt::loss_sum(const at::Tensor& output, const at::Tensor& target) {
  const auto sums = output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::cross_entropy_loss(output.reshape({-1, output.size(-1)}).to(sums),
                                target.reshape({-1}), {}, at::Reduction::Sum);
}

}  // namespace trireme
