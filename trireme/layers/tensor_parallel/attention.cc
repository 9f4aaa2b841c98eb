// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/attention.h"

#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/check.h"
#include "trireme/layers/tensor_parallel/kept.h"
#include "trireme/layers/tensor_parallel/row_extent.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

ParallelAttentionOptions complete(ParallelAttentionOptions o, int ranks) {
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  const auto fault = fault_of_heads(o.heads, o.kv_heads, ranks);
  check<UsageError>(fault.empty(), "ParallelAttention: {}", fault);
  check<UsageError>(o.width > 0 && o.width % o.heads == 0,
                    "ParallelAttention: a width of {} does not divide into {} heads: choose a "
                    "multiple",
                    o.width, o.heads);
  return o;
}

struct Shared {
  Group group;
  int64_t first = 0;  // rows from here on are shared
  CallSite site;
};

// The identity, whose backward adds the gradients of the rows that several ranks hold.
struct SharedRows : Function<SharedRows> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight, Shared shared) {
    detail::keep(ctx, std::move(shared));
    return weight;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    check<UsageError>(!c10::GradMode::is_enabled(),
                      "ParallelAttention: with key/value heads that ranks share it can be "
                      "differentiated once: leave out create_graph");
    Shared& shared = detail::kept<Shared>(ctx);
    const at::Tensor sum = grads[0].clone(at::MemoryFormat::Contiguous);
    const at::Tensor rows = sum.narrow(0, shared.first, sum.size(0) - shared.first);
    shared.group.all_reduce(rows, ReduceOp::sum, shared.site).wait();
    return {sum, at::Tensor()};
  }
};

// Each key/value head for the queries that it serves: [b, t, heads · d] from [b, t, kv_heads · d].
at::Tensor repeated(const at::Tensor& t, int64_t kv_heads, int64_t times) {
  const int64_t d = t.size(2) / kv_heads;
  return t.reshape({t.size(0), t.size(1), kv_heads, 1, d})
      .expand({-1, -1, -1, times, -1})
      .reshape({t.size(0), t.size(1), kv_heads * times * d});
}

}  // namespace

ParallelAttention::ParallelAttention(TensorParallel tp, ParallelAttentionOptions options,
                                     ContextParallel cp)
    : tp_(std::move(tp)),
      cp_(std::move(cp)),
      options_(complete(options, tp_.size())),
      parts_(split_heads(options_.heads, options_.kv_heads, tp_.size(), tp_.rank())) {
  const auto& o = options_;
  if (cp_.size() > 1 && cp_.method() == ContextMethod::all_to_all) {
    const auto fault =
        fault_of_context_heads(parts_.queries.length, parts_.keys.length, cp_.size());
    check<UsageError>(fault.empty(), "ParallelAttention: {}", fault);
  }
  const int64_t d = o.width / o.heads;
  qkv = register_module("qkv", std::make_shared<ColumnParallelLinear>(
                                   tp_, o.width, (o.heads + 2 * o.kv_heads) * d,
                                   qkv_rows(parts_, o.heads, o.kv_heads, d),
                                   std::vector<bool>{true, parts_.speaks, parts_.speaks}, o.bias));
  proj = register_module(
      "proj", std::make_shared<RowParallelLinear>(
                  tp_, o.width, o.width, ParallelLinearOptions{.bias = o.bias, .granule = d}));
}

at::Tensor ParallelAttention::forward(const at::Tensor& x, int64_t sequence,
                                      const at::Tensor& starts) const {
  const int64_t d = options_.width / options_.heads;
  const int64_t queries = parts_.queries.length, keys = parts_.keys.length;
  at::Tensor weight = qkv->weight, bias = qkv->bias;
  if (parts_.sharers > 1) {
    const Shared shared{tp_.sharers(static_cast<int>(parts_.sharers)), queries * d,
                        CallSite::here()};
    weight = SharedRows::apply(weight, shared);
    if (bias.defined()) bias = SharedRows::apply(bias, shared);
  }
  const RowExtent row = row_extent(x, sequence, tp_, cp_);
  at::Tensor projected =
      column_parallel_linear(x, weight, bias, tp_, row.own, qkv->half_products());
  if (cp_.size() > 1) return proj->forward(attend_grouped(projected, row.time, starts));
  // Over whole rows the same attention serves heads of their own and shared ones, with its bits and
  // its bfloat16 products.
  if (keys != queries) {
    const auto part = [&](int64_t begin) { return projected.narrow(2, begin * d, keys * d); };
    projected =
        at::cat({projected.narrow(2, 0, queries * d), repeated(part(queries), keys, queries / keys),
                 repeated(part(queries + keys), keys, queries / keys)},
                2);
  }
  return proj->forward(attend(projected, queries, starts));
}

// Key/value heads are read where they lie by the queries that they serve.
at::Tensor ParallelAttention::attend_grouped(const at::Tensor& projected, int64_t time,
                                             const at::Tensor& starts) const {
  const int64_t d = options_.width / options_.heads;
  const int64_t queries = parts_.queries.length, keys = parts_.keys.length;
  const auto parts = projected.split_with_sizes({queries * d, keys * d, keys * d}, 2);
  const auto heads = [&](size_t i, int64_t count) {
    return parts[i].view({parts[i].size(0), parts[i].size(1), count, d});
  };
  return context_attention(heads(0, queries), heads(1, keys), heads(2, keys), starts, cp_, time)
      .flatten(2);
}

}  // namespace trireme
