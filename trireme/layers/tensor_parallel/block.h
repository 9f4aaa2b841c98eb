// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/layers/context_parallel/context_parallel.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/plain.h"
#include "trireme/layers/tensor_parallel/attention.h"
#include "trireme/layers/tensor_parallel/mlp.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"

namespace trireme {

/// A LayerNorm that every rank holds, over whole rows. With sequence_parallel each rank sees its
/// positions, and the gradients of its parameters are parts of a sum.
struct TRIREME_API ParallelLayerNorm : LayerNorm, LaysOutParameters {
  ParallelLayerNorm(TensorParallel tp, int64_t width);  // weight: 1, bias: 0
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor& p) const override;

 private:
  TensorParallel tp_;
};

/// Dropout of an activation [batch, positions, width] that is equal on all ranks or, with
/// sequence_parallel, divided over positions: drops what trireme::Dropout drops on one process. It
/// is drawn by key, so in training it needs a RandomScope (UsageError without): what each rank
/// draws for itself would make the ranks' activations differ. `sequence`: the positions of all
/// ranks; 0: as many on each.
TRIREME_API at::Tensor parallel_dropout(DropoutImpl& dropout, const at::Tensor& x,
                                        const TensorParallel& tp, int64_t sequence = 0,
                                        const ContextParallel& cp = ContextParallel::alone());

struct ParallelBlockOptions {
  int64_t width = 0, heads = 0;
  int64_t kv_heads = 0;  // 0: heads
  int64_t hidden = 0;    // 0: 4 · width
  bool swiglu = false;   // else GELU
  double dropout = 0;    // behind each branch
};

/// A pre-norm transformer block: y = x + drop1(attn(ln1(x))), y + drop2(mlp(ln2(y))). The names of
/// its parameters are those of the GPT's blocks (models/gpt.h): ln1, attn.qkv, attn.proj, ln2,
/// mlp.up, mlp.down. With sequence_parallel norms, dropout and residuals see this rank's positions.
/// Every rank makes it and calls it; it may be recomputed (tensor/recompute/recompute.h).
struct TRIREME_API ParallelBlock : torch::nn::Module {
  ParallelBlock(TensorParallel tp, const ParallelBlockOptions& options,
                ContextParallel cp = ContextParallel::alone());
  /// x: [batch, positions, width]. `sequence`: the positions of all ranks where they have parts of
  /// a row; 0: as many on each. `starts`: where the documents of all positions start, if rows hold
  /// several (layers/documents.h).
  at::Tensor forward(const at::Tensor& x, int64_t sequence = 0, const at::Tensor& starts = {});

  std::shared_ptr<ParallelLayerNorm> ln1, ln2;
  std::shared_ptr<ParallelAttention> attn;
  std::shared_ptr<ParallelGeluMlp> gelu;  // one of the two is the module "mlp"
  std::shared_ptr<ParallelSwiGlu> swiglu;
  Dropout drop1, drop2;

 private:
  TensorParallel tp_;
  ContextParallel cp_;
};

}  // namespace trireme
