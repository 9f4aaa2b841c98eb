// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/plain.h"
#include "trireme/models/gpt_stages.h"
#include "trireme/models/model.h"

namespace trireme {

struct GptBlock;

/// A GPT-2-like decoder over bytes: learned positions, pre-norm blocks (causal attention;
/// up-projection ×4, GELU in its tanh form, down-projection), a final norm, a head without bias.
/// Dropout behind the embedding and behind each branch; none inside the attention. input [b, t]
/// int64, t <= context; output [b, t, vocab]; loss: cross-entropy summed over tokens. With the
/// default options 10.9 M parameters.
///
/// Parameters: wte.weight, wpe.weight, blocks.N.{ln1, attn.qkv, attn.proj, ln2, mlp.up,
/// mlp.down}.{weight, bias}, ln_f.{weight, bias}, head.weight (absent when tied). attn.qkv: queries
/// of all heads, then keys, then values.
struct TRIREME_API Gpt : Model, MultipliesHalf {
  /// Throws UsageError for sizes below 1 or heads that do not divide the width.
  /// Units: the blocks of this rank.
  Gpt(const GptOptions& options, uint64_t seed, const UnitMade& unit_made = {});
  at::Tensor forward(const at::Tensor& input) override;
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override;
  void select_stage(size_t stage) override;
  at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) override;
  /// Scores of the token after the last one: [b, vocab].
  at::Tensor next_logits(const at::Tensor& input);
  std::map<std::string, std::string> copies() const override;
  /// Those of this rank.
  int64_t blocks() const override { return static_cast<int64_t>(blocks_.size()); }
  void set_recompute(std::vector<bool> blocks) override;
  const GptOptions& options() const { return options_; }

 private:
  at::Tensor embed(const at::Tensor& input, const at::Tensor& starts);
  at::Tensor run_blocks(at::Tensor x, const at::Tensor& starts);
  /// Where the documents of a micro-batch start; undefined: rows are one document each.
  at::Tensor starts_of(const at::Tensor& ids) const;
  at::Tensor hidden(const at::Tensor& input);
  at::Tensor logits(const at::Tensor& x) const;

  GptOptions options_;
  GptStages stages_;
  std::shared_ptr<Embedding> wte_, wpe_;  // null on ranks without the stages that use them
  Dropout drop_{nullptr};
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  std::vector<bool> recompute_;  // for each block
  std::shared_ptr<LayerNorm> ln_f_;
  std::shared_ptr<Linear> head_;  // null without the last stage, and where wte_ is the head
};

}  // namespace trireme
