// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/block.h"

#include <algorithm>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/layers/tensor_parallel/row_extent.h"
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
                            int64_t sequence, const ContextParallel& cp) {
  if (!dropout.is_training() || dropout.p() == 0) return x;
  check<UsageError>(tp.size() * cp.size() == 1 || RandomScope::current(),
                    "dropout '{}' between layers that ranks divide: no RandomScope is set on this "
                    "thread, and what each rank draws for itself would differ: set one around the "
                    "forward",
                    dropout.full_name());
  const bool divided = tp.sequence_parallel() && tp.size() > 1;
  if (!divided && cp.size() == 1) return dropout.forward(x);
  check<UsageError>(!dropout.full_name().empty(),
                    "dropout: the module has no name: call trireme::name_dropouts(model) once, "
                    "after the model is complete");
  const RowExtent row = row_extent(x, sequence, tp, cp);
  auto whole = x.sizes().vec();
  whole.at(1) = row.time;
  Part mine{0, row.own};
  if (divided) mine = split_evenly(row.own, tp.size())[static_cast<size_t>(tp.rank())];
  std::vector<Box> boxes;
  int64_t begin = 0;  // of a range of places, among those of this context-parallel rank
  for (const Part& range : cp.parts(row.time)) {
    const int64_t first = std::max(mine.begin, begin),
                  last = std::min(mine.end(), begin + range.length);
    if (first < last) {
      boxes.push_back(Box::whole(x.sizes().vec()));
      boxes.back().offsets[1] = range.begin + first - begin;
      boxes.back().lengths[1] = last - first;
    }
    begin += range.length;
  }
  return keyed_dropout(x, dropout.p(), dropout.full_name(), whole, boxes, 1);
}

ParallelBlock::ParallelBlock(TensorParallel tp, const ParallelBlockOptions& o, ContextParallel cp)
    : ln1(register_module("ln1", std::make_shared<ParallelLayerNorm>(tp, o.width))),
      ln2(register_module("ln2", std::make_shared<ParallelLayerNorm>(tp, o.width))),
      attn(register_module(
          "attn", std::make_shared<ParallelAttention>(
                      tp, ParallelAttentionOptions{o.width, o.heads, o.kv_heads, !o.swiglu}, cp))),
      drop1(register_module("drop1", Dropout(o.dropout))),
      drop2(register_module("drop2", Dropout(o.dropout))),
      tp_(tp),
      cp_(std::move(cp)) {
  const int64_t hidden = o.hidden ? o.hidden : 4 * o.width;
  if (o.swiglu)
    swiglu = register_module("mlp", std::make_shared<ParallelSwiGlu>(tp, o.width, hidden));
  else
    gelu = register_module("mlp", std::make_shared<ParallelGeluMlp>(tp, o.width, hidden));
}

at::Tensor ParallelBlock::forward(const at::Tensor& x, int64_t sequence, const at::Tensor& starts) {
  const RowExtent row = row_extent(x, sequence, tp_, cp_);
  const at::Tensor y = x.add(parallel_dropout(
      *drop1, attn->forward(ln1->forward(x), row.time, starts), tp_, row.time, cp_));
  const at::Tensor normed = ln2->forward(y);
  const at::Tensor branch =
      swiglu ? swiglu->forward(normed, row.own) : gelu->forward(normed, row.own);
  return y.add(parallel_dropout(*drop2, branch, tp_, row.time, cp_));
}

}  // namespace trireme
