// SPDX-License-Identifier: Apache-2.0
// Every rank gathers all keys and values, and lets go of them: backward gathers them again, and
// adds their gradients where they belong.
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "trireme/base/trace.h"
#include "trireme/layers/context_parallel/attend_across.h"
#include "trireme/layers/context_parallel/key_block.h"
#include "trireme/layers/tensor_parallel/kept.h"

namespace trireme::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The blocks of all ranks.
class Gathered {
 public:
  Gathered(const Across& across)
      : plan(across.time, across.cp.size(), across.cp.balance()),
        group(across.cp.group()),
        rank(across.cp.rank()),
        site_(across.site) {}

  std::vector<KeyBlock> all(const at::Tensor& k, const at::Tensor& v) {
    const KeyBlock own = own_block(group, plan, rank, k, v);
    std::vector<KeyBlock> blocks = empty(k, k.scalar_type());
    const Span span("exposed_comm", "wait for keys and values");
    group.all_gather(memories(blocks), own.memory(), site_).wait();
    for (KeyBlock& block : blocks) block = block.computed();
    return blocks;
  }
  /// Uninitialised, one for each rank.
  std::vector<KeyBlock> empty(const at::Tensor& like, at::ScalarType type) {
    std::vector<KeyBlock> blocks;
    for (int64_t r = 0; r < plan.ranks(); ++r)
      blocks.emplace_back(group, plan.places(r), like, type);
    return blocks;
  }
  /// Adds what ranks have for each other; this rank's block of the sums.
  KeyBlock scattered(const std::vector<KeyBlock>& blocks, const at::Tensor& like) {
    KeyBlock own(group, plan.places(rank), like, blocks[0].memory().scalar_type());
    const Span span("exposed_comm", "wait for gradients of keys and values");
    group.reduce_scatter(own.memory(), memories(blocks), ReduceOp::sum, site_).wait();
    return own;
  }
  /// Its own block first: of that every query sees something.
  int64_t source(int64_t i) const { return (rank + i) % plan.ranks(); }

  const RingPlan plan;
  Group group;
  const int64_t rank;

 private:
  static std::vector<at::Tensor> memories(const std::vector<KeyBlock>& blocks) {
    std::vector<at::Tensor> all;
    for (const KeyBlock& block : blocks) all.push_back(block.memory());
    return all;
  }
  CallSite site_;
};

struct GatheredAttention : torch::autograd::Function<GatheredAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const c10::optional<at::Tensor>& own_starts,
                            const Across& across) {
    Gathered gathered(across);
    const at::Tensor starts = own_starts.value_or(at::Tensor());
    const auto blocks = gathered.all(k, v);
    OwnQueries queries(gathered.plan, gathered.rank, computed(q), starts);
    for (int64_t i = 0; i < gathered.plan.ranks(); ++i) {
      const int64_t source = gathered.source(i);
      queries.attend(source, blocks[static_cast<size_t>(source)]);
    }
    const at::Tensor out = queries.out().to(q.scalar_type());
    ctx->save_for_backward({q, k, v, out, queries.log_sums(), starts});
    keep(ctx, across);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor none;
    if (!grads[0].defined()) return {none, none, none, none, none};
    check_once();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    Gathered gathered(kept<Across>(ctx));
    const at::Tensor dout = computed(grads[0]);
    const auto blocks = gathered.all(k, v);
    std::vector<KeyBlock> gradients = gathered.empty(k, computed_type(k.scalar_type()));
    OwnQueries queries(gathered.plan, gathered.rank, computed(q), saved[5]);
    queries.saw(computed(saved[3]), saved[4]);
    for (int64_t i = 0; i < gathered.plan.ranks(); ++i) {
      const auto source = static_cast<size_t>(gathered.source(i));
      KeyBlock& to = gradients[source];
      std::vector<bool> fresh(to.ranges().size(), true);
      queries.attend_backward(gathered.source(i), blocks[source], dout, to, fresh);
      for (size_t r = 0; r < fresh.size(); ++r)
        if (fresh[r]) to.at(r).zero_();
    }
    const KeyBlock own = gathered.scattered(gradients, k);
    return {queries.dq().to(q.scalar_type()), keys_of(own).to(k.scalar_type()),
            values_of(own).to(v.scalar_type()), none, none};
  }
};

}  // namespace

at::Tensor gathered_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& starts, const Across& across) {
  c10::optional<at::Tensor> own;
  if (starts.defined()) own = across.cp.own(starts);
  return GatheredAttention::apply(q, k, v, own, across);
}

}  // namespace trireme::detail
