// SPDX-License-Identifier: Apache-2.0
// Ring attention (Liu, Zaharia, Abbeel, 2023): keys and values go from rank to rank while each
// computes with the block at hand; backward they go round once more, and their gradients behind
// them, home.
#include <ATen/core/grad_mode.h>
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

class Ring {
 public:
  Ring(const Across& across)
      : plan(across.time, across.cp.size(), across.cp.balance()),
        group(across.cp.group()),
        rank(across.cp.rank()),
        site_(across.site) {
    for (int64_t r = 0; r < plan.ranks(); ++r) to_.push_back(static_cast<int>(plan.next(r)));
  }

  /// A block on its way: `arriving` is not to be read before wait().
  struct Moving {
    KeyBlock arriving;
    Work work;
    KeyBlock wait() {
      const Span span("exposed_comm", "wait for keys and values");
      work.wait();
      return std::move(arriving);
    }
  };
  /// Sends what is here after `hop` hops on, and receives what will be here after the next one.
  Moving keys(const KeyBlock& here, int64_t hop, const at::Tensor& like) {
    return move(here.only(group, plan.keys(plan.source(rank, hop), hop + 1)),
                plan.keys(plan.source(rank, hop + 1), hop + 1), like, like.scalar_type());
  }
  Moving gradients(const KeyBlock& here, int64_t hop, const at::Tensor& like, at::ScalarType type) {
    return move(here, plan.gradients(plan.source(rank, hop + 1), hop + 1), like, type);
  }

  const RingPlan plan;
  Group group;
  const int64_t rank;

 private:
  Moving move(const KeyBlock& sent, const std::vector<Part>& ranges, const at::Tensor& like,
              at::ScalarType type) {
    Moving moving{{group, ranges, like, type}, {}};
    moving.work = group.permute(moving.arriving.memory(), sent.memory(), to_, site_);
    return moving;
  }

  std::vector<int> to_;
  CallSite site_;
};

// What came, plus what this rank computed.
KeyBlock added(const Ring& ring, std::vector<Part> ranges, const KeyBlock& came,
               const KeyBlock& own, const std::vector<bool>& fresh, const at::Tensor& like) {
  KeyBlock sum(ring.group, std::move(ranges), like, own.memory().scalar_type());
  for (size_t i = 0; i < sum.ranges().size(); ++i) {
    const auto before = came.find(sum.ranges()[i]), here = own.find(sum.ranges()[i]);
    const bool computed = here && !fresh[*here];
    if (before)
      sum.at(i).copy_(came.at(*before));
    else
      sum.at(i).copy_(own.at(here.value()));
    if (before && computed) sum.at(i).add_(own.at(*here));
  }
  return sum;
}

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const c10::optional<at::Tensor>& own_starts,
                            const Across& across) {
    Ring ring(across);
    const int64_t ranks = ring.plan.ranks();
    const at::Tensor starts = own_starts.value_or(at::Tensor());
    OwnQueries queries(ring.plan, ring.rank, computed(q), starts);
    KeyBlock here = own_block(ring.group, ring.plan, ring.rank, k, v);
    for (int64_t hop = 0; hop < ranks; ++hop) {
      Ring::Moving next;
      if (hop + 1 < ranks) next = ring.keys(here, hop, k);
      queries.attend(ring.plan.source(ring.rank, hop), here.computed());
      if (hop + 1 < ranks) here = next.wait();
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
    Ring ring(kept<Across>(ctx));
    const int64_t ranks = ring.plan.ranks();
    const auto type = computed_type(q.scalar_type());
    const at::Tensor dout = computed(grads[0]);
    OwnQueries queries(ring.plan, ring.rank, computed(q), saved[5]);
    queries.saw(computed(saved[3]), saved[4]);

    KeyBlock here = own_block(ring.group, ring.plan, ring.rank, k, v);
    KeyBlock home;        // what this rank's own queries give its keys
    Ring::Moving coming;  // gradients of the block that is here next
    for (int64_t hop = 0; hop < ranks; ++hop) {
      Ring::Moving next;
      if (hop + 1 < ranks) next = ring.keys(here, hop, k);
      const int64_t source = ring.plan.source(ring.rank, hop);
      KeyBlock own(ring.group, here.ranges(), k, type);
      std::vector<bool> fresh(own.ranges().size(), true);
      queries.attend_backward(source, here.computed(), dout, own, fresh);
      if (hop == 0) {
        home = own;
      } else {
        const KeyBlock came = hop > 1 ? coming.wait() : KeyBlock();
        coming = ring.gradients(
            added(ring, ring.plan.gradients(source, hop + 1), came, own, fresh, k), hop, k, type);
      }
      if (hop + 1 < ranks) here = next.wait();
    }
    const KeyBlock came = coming.wait();
    for (size_t i = 0; i < came.ranges().size(); ++i)
      home.at(home.find(came.ranges()[i]).value()).add_(came.at(i));
    return {queries.dq().to(q.scalar_type()), keys_of(home).to(k.scalar_type()),
            values_of(home).to(v.scalar_type()), none, none};
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& starts, const Across& across) {
  c10::optional<at::Tensor> own;
  if (starts.defined()) own = across.cp.own(starts);
  return RingAttention::apply(q, k, v, own, across);
}

}  // namespace trireme::detail
