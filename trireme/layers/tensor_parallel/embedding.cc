// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>

#include <limits>

#include "trireme/base/check.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/layers/tensor_parallel/regions.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Part own_vocabulary(const TensorParallel& tp, int64_t count) {
  const auto fault = fault_of_split("a vocabulary", count, tp.size());
  check<UsageError>(fault.empty(), "VocabParallelEmbedding: {}", fault);
  return split_evenly(count, tp.size())[static_cast<size_t>(tp.rank())];
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(TensorParallel tp, int64_t count, int64_t width)
    : tp_(std::move(tp)), count_(count), rows_(own_vocabulary(tp_, count)) {
  weight = register_parameter("weight", at::full({rows_.length, width}, kNaN, at::kFloat));
}

at::Tensor VocabParallelEmbedding::forward(const at::Tensor& ids) const {
  tp_.check_equal(ids, "the input of a VocabParallelEmbedding");
  const at::Tensor outside = ids.lt(0).logical_or(ids.ge(count_));
  const bool looks = !is_asynchronous(ids.device());
  if (looks && outside.any().item<bool>())
    fail<UsageError>("VocabParallelEmbedding: an id of {} is outside of the vocabulary of {}",
                     ids.masked_select(outside)[0].item<int64_t>(), count_);
  const at::Tensor others = ids.lt(rows_.begin).logical_or(ids.ge(rows_.end()));
  const at::Tensor local = ids.sub(rows_.begin).masked_fill(others, 0);
  at::Tensor rows = at::embedding(weight, local).masked_fill(others.unsqueeze(-1), 0);
  if (!looks) rows = rows.masked_fill(outside.unsqueeze(-1), kNaN);
  if (!tp_.sequence_parallel()) return regions::reduce_from(rows, tp_.group());
  return regions::reduce_scatter_sequence(rows, tp_.group(), -2);
}

at::Tensor VocabParallelEmbedding::logits(const at::Tensor& x, int64_t sequence) const {
  return column_parallel_linear(x, weight, {}, tp_, sequence);
}

std::optional<ParameterLayout> VocabParallelEmbedding::layout_of(const std::string& name,
                                                                 const at::Tensor& p) const {
  if (name != "weight") return std::nullopt;
  return ParameterLayout{{count_, p.size(1)},
                         {{{rows_.begin, 0}, {rows_.length, p.size(1)}}},
                         {{tp_.axis(), OnAxis::split}}};
}

ParallelPositions::ParallelPositions(TensorParallel tp, int64_t context, int64_t width)
    : tp_(std::move(tp)) {
  weight = register_parameter("weight", at::full({context, width}, kNaN, at::kFloat));
}

at::Tensor ParallelPositions::forward(const at::Tensor& x, int64_t sequence,
                                      const at::Tensor& places) const {
  Part part{0, x.size(-2)};
  if (tp_.sequence_parallel() && tp_.size() > 1) {
    const int64_t whole = sequence ? sequence : part.length * tp_.size();
    const auto fault = fault_of_split("a sequence", whole, tp_.size());
    check<UsageError>(fault.empty(), "ParallelPositions: {}", fault);
    const Part due = split_evenly(whole, tp_.size())[static_cast<size_t>(tp_.rank())];
    check<UsageError>(due.length == part.length,
                      "ParallelPositions: rank {} of {} was given {} positions of a sequence of "
                      "{}, and its part is {}",
                      tp_.rank(), tp_.size(), part.length, whole, due.length);
    part = due;
  }
  check<UsageError>(part.end() <= weight.size(0),
                    "ParallelPositions: position {} is outside of the context of {}",
                    part.end() - 1, weight.size(0));
  if (places.defined())
    return x.add(at::embedding(weight, places.narrow(1, part.begin, part.length)));
  return x.add(weight.narrow(0, part.begin, part.length));
}

std::optional<ParameterLayout> ParallelPositions::layout_of(const std::string& name,
                                                            const at::Tensor& p) const {
  if (name != "weight") return std::nullopt;
  return tp_.replicated(p);
}

}  // namespace trireme
