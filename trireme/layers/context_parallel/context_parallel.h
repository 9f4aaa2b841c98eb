// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/call_site.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/layers/context_parallel/context_plan.h"

namespace trireme {

/// Over which ranks the positions of a sequence are divided, and how attention puts them together.
/// Every layer of a model that looks across positions is given a copy; layers that work on each
/// position alone do not know about it.
///
///   ContextParallel cp(mesh.group("cp"), {.method = ContextMethod::ring});
///   x = embedding(cp.own(ids)) + positions(cp.places(t));      // [batch, own positions, width]
///   y = context_attention(q, k, v, {}, cp, t);                 // exact, over all positions
///
/// Each rank computes the loss of its own positions: gradients of parameters, losses and weights
/// are parts of sums, and are added over the group as over data-parallel ranks. Every rank makes
/// the same calls in the same order, forward and backward. One thread uses the group at a time.
class TRIREME_API ContextParallel {
 public:
  struct Options {
    ContextMethod method = ContextMethod::ring;
    ContextBalance balance = ContextBalance::head_tail;
  };

  explicit ContextParallel(Group group);
  ContextParallel(Group group, Options options);  // UsageError for an empty group
  /// Of one rank, which needs no peers: it has all positions.
  static ContextParallel alone();
  /// Of `rank` among `size` ranks that do not exist, for planning: layers that are given it have
  /// that rank's positions. What they would compute means nothing.
  static ContextParallel imagined(int rank, int size, Options options);

  const Group& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  ContextMethod method() const { return options_.method; }
  ContextBalance balance() const { return options_.balance; }

  /// The places of a row of `time` that this rank has, as ascending ranges. UsageError where there
  /// are fewer places than ranks.
  std::vector<Part> parts(int64_t time) const;
  /// How many they are.
  int64_t length(int64_t time) const { return count_of(parts(time)); }
  /// They, ascending: int64 [length(time)], on `device`. What rotary positions are computed from.
  at::Tensor places(int64_t time, at::Device device = at::kCPU) const;
  /// This rank's positions of a tensor that has all of them in `dim`; for one rank, the tensor.
  at::Tensor own(const at::Tensor& whole, int64_t dim = 1) const;

 private:
  Group group_;
  Options options_;
};

/// Causal attention over all positions of a row, of which each rank has some: as attention()
/// (layers/attention.h), whose dtypes, heads and devices it takes. q: [batch, own positions, heads,
/// d]; k and v: [batch, own positions, kv_heads, d], of cp.parts(time). Returns [batch, own
/// positions, heads, d].
///
/// `starts`: [batch, time], where the documents of the whole row start (layers/documents.h), the
/// same on all ranks; undefined: rows are one document each. `time`: positions of all ranks; 0:
/// those of `starts`, or as many on each rank as here.
///
/// Exact, forward and backward: only the order of additions differs from one rank's. Every rank
/// calls it, forward and backward, in the same order; it blocks. It may be recomputed. Can be
/// differentiated once. UsageError, before anything is sent, for shapes that do not fit and for
/// heads that all_to_all cannot divide.
TRIREME_API at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& starts,
                                         const ContextParallel& cp, int64_t time = 0,
                                         CallSite site = CallSite::here());

}  // namespace trireme
