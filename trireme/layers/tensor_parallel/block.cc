// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/block.h"

#include "trireme/base/check.h"
#include "trireme/layers/tensor_parallel/split_plan.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/random/random_boxes.h"

namespace trireme {

ParallelLayerNorm::ParallelLayerNorm(TensorParallel tp, int64_t width)
    : LayerNorm(width), tp_(std::move(tp)) {
  at::NoGradGuard no_grad;
  weight.fill_(1);
  bias.zero_();
}

std::optional<ParameterLayout> ParallelLayerNorm::layout_of(const std::string& name,
                                                            const at::Tensor& p) const {
  if (name != "weight" && name != "bias") return std::nullopt;
  return tp_.replicated(p);
}

at::Tensor parallel_dropout(DropoutImpl& dropout, const at::Tensor& x, const TensorParallel& tp,
                            int64_t sequence) {
  if (!dropout.is_training() || dropout.p() == 0) return x;
  check<UsageError>(tp.size() == 1 || RandomScope::current(),
                    "dropout '{}' between tensor-parallel layers: no RandomScope is set on this "
                    "thread, and what each rank draws for itself would differ: set one around the "
                    "forward",
                    dropout.full_name());
  if (!tp.sequence_parallel() || tp.size() == 1) return dropout.forward(x);
  check<UsageError>(!dropout.full_name().empty(),
                    "dropout: the module has no name: call trireme::name_dropouts(model) once, "
                    "after the model is complete");
  auto whole = x.sizes().vec();
  whole.at(1) = sequence ? sequence : x.size(1) * tp.size();
  Box box = Box::whole(x.sizes().vec());
  box.offsets[1] = split_evenly(whole[1], tp.size())[static_cast<size_t>(tp.rank())].begin;
  return keyed_dropout(x, dropout.p(), dropout.full_name(), whole, box);
}

ParallelBlock::ParallelBlock(TensorParallel tp, const ParallelBlockOptions& o)
    : ln1(register_module("ln1", std::make_shared<ParallelLayerNorm>(tp, o.width))),
      ln2(register_module("ln2", std::make_shared<ParallelLayerNorm>(tp, o.width))),
      attn(register_module(
          "attn", std::make_shared<ParallelAttention>(
                      tp, ParallelAttentionOptions{o.width, o.heads, o.kv_heads, !o.swiglu}))),
      drop1(register_module("drop1", Dropout(o.dropout))),
      drop2(register_module("drop2", Dropout(o.dropout))),
      tp_(tp) {
  const int64_t hidden = o.hidden ? o.hidden : 4 * o.width;
  if (o.swiglu)
    swiglu = register_module("mlp", std::make_shared<ParallelSwiGlu>(tp, o.width, hidden));
  else
    gelu = register_module("mlp", std::make_shared<ParallelGeluMlp>(tp, o.width, hidden));
}

at::Tensor ParallelBlock::forward(const at::Tensor& x, int64_t sequence, const at::Tensor& starts) {
  const at::Tensor y = x.add(
      parallel_dropout(*drop1, attn->forward(ln1->forward(x), sequence, starts), tp_, sequence));
  const at::Tensor normed = ln2->forward(y);
  const at::Tensor branch =
      swiglu ? swiglu->forward(normed, sequence) : gelu->forward(normed, sequence);
  return y.add(parallel_dropout(*drop2, branch, tp_, sequence));
}

}  // namespace trireme
