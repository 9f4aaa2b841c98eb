// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/layers/context_parallel/context_parallel.h"
#include "trireme/layers/tensor_parallel/block.h"
#include "trireme/layers/tensor_parallel/cross_entropy.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/models/gpt_stages.h"
#include "trireme/models/model.h"

namespace trireme {

struct ParallelGptOptions : GptOptions {
  int64_t kv_heads = 0;  // 0: heads
  int64_t hidden = 0;    // of the feed-forward blocks; 0: 4 · width
  bool swiglu = false;   // else GELU
};

/// The network of models/gpt.h divided over the ranks of a tensor-parallel group. With the same
/// options and seed its parameters have the names of Gpt's and, put together, the same bits; so do
/// the masks of its dropout. Parameters of any split load into any other (layouts_of()).
///
/// input [b, t] int64, the same on all ranks; output: this rank's part of the logits, [b, t, part
/// of vocab], which never exist whole; loss: the sum over tokens, equal on all ranks. Every rank
/// makes it and calls it, and its ranks have the same stages of a pipeline. In training with
/// dropout it needs a RandomScope.
///
/// With a ContextParallel, each of its ranks is given whole rows of tokens and targets, computes on
/// its own positions of them, and returns their logits; the loss and what is counted right are of
/// its own positions too, and the ranks' are to be added, as the gradients of the parameters are.
struct TRIREME_API ParallelGpt : Model {
  /// Throws UsageError for sizes that cannot be divided, with the numbers.
  ParallelGpt(TensorParallel tp, const ParallelGptOptions& options, uint64_t seed,
              const UnitMade& unit_made = {}, ContextParallel cp = ContextParallel::alone());
  at::Tensor forward(const at::Tensor& input) override;
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override;
  void select_stage(size_t stage) override;
  at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) override;
  at::Tensor count_right(const at::Tensor& output, const at::Tensor& target) override;
  std::map<std::string, std::string> copies() const override;
  int64_t blocks() const override { return static_cast<int64_t>(blocks_.size()); }
  void set_recompute(std::vector<bool> blocks) override;

 private:
  at::Tensor long_enough(const at::Tensor& rows, int64_t value) const;

  TensorParallel tp_;
  ContextParallel cp_;
  ParallelGptOptions options_;
  GptStages stages_;
  std::shared_ptr<VocabParallelEmbedding> wte_, copy_;  // of wte_, for a tied head apart from it
  std::shared_ptr<ParallelPositions> wpe_;
  Dropout drop_{nullptr};
  std::vector<std::shared_ptr<ParallelBlock>> blocks_;
  std::vector<bool> recompute_;
  std::shared_ptr<ParallelLayerNorm> ln_f_;
  std::shared_ptr<ColumnParallelLinear> head_;  // null when tied, and without the last stage
};

}  // namespace trireme
