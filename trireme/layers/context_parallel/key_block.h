// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/layers/attention_blocks.h"
#include "trireme/layers/context_parallel/ring_plan.h"

// What ring attention and gathered attention are made of: keys and values of some ranges of places
// in one piece of memory, which travels, and the queries of this rank, which stay.
namespace trireme::detail {

/// Keys and values, or their gradients: for each range in turn [2, batch, places, kv_heads, d].
class KeyBlock {
 public:
  KeyBlock() = default;
  /// Uninitialised. `like`: keys, [batch, places, kv_heads, d]; `type`: in which to keep them.
  KeyBlock(const Group& group, std::vector<Part> ranges, const at::Tensor& like,
           at::ScalarType type);

  const std::vector<Part>& ranges() const { return ranges_; }
  const at::Tensor& memory() const { return memory_; }
  /// The range that begins so; nullopt: it is not here.
  std::optional<size_t> find(const Part& range) const;
  at::Tensor keys(size_t i) const { return at(i)[0]; }
  at::Tensor values(size_t i) const { return at(i)[1]; }
  at::Tensor at(size_t i) const;
  /// Takes the places of all ranges, side by side in dim 1.
  void fill(const at::Tensor& keys, const at::Tensor& values);
  /// The same in the type that is computed in.
  KeyBlock computed() const;
  /// Some of the ranges; all of them: this one.
  KeyBlock only(const Group& group, const std::vector<Part>& ranges) const;

 private:
  std::vector<Part> ranges_;
  std::vector<int64_t> begins_;  // of the ranges, in elements
  int64_t batch_ = 0, heads_ = 0, width_ = 0;
  at::Tensor memory_;
};

/// The queries of this rank, of [batch, own positions, heads, d], and what they saw so far.
class OwnQueries {
 public:
  /// q: of the computed type. starts: [batch, own positions], or undefined.
  OwnQueries(const RingPlan& plan, int64_t rank, at::Tensor q, at::Tensor starts);
  /// Of a forward that is complete, for its backward.
  void saw(at::Tensor out, at::Tensor log_sums);

  /// Puts what the queries see of the block of `source` together with what they saw before.
  void attend(int64_t source, const KeyBlock& block);
  const at::Tensor& out() const { return out_; }
  const at::Tensor& log_sums() const { return log_sums_; }

  /// Adds to dq(), and adds the gradients of the block to `to`, ranges of which hold nothing yet
  /// where `fresh`. Ranges of which the queries see nothing are left as they are.
  void attend_backward(int64_t source, const KeyBlock& block, const at::Tensor& dout, KeyBlock& to,
                       std::vector<bool>& fresh);
  const at::Tensor& dq() const { return dq_; }

 private:
  int64_t offset(const Part& range) const;
  AttentionMask mask(const VisibleBlock& b) const;
  std::vector<bool>::reference first(const Part& range);

  const RingPlan& plan_;
  int64_t rank_;
  at::Tensor q_, starts_, out_, log_sums_, dq_;
  std::vector<bool> first_;  // by range of queries: nothing is there yet
};

/// Keys and values of [batch, own positions, kv_heads, d] as what travels.
KeyBlock own_block(const Group& group, const RingPlan& plan, int64_t rank, const at::Tensor& k,
                   const at::Tensor& v);
/// The two parts of such a block, side by side again.
at::Tensor keys_of(const KeyBlock& block);
at::Tensor values_of(const KeyBlock& block);

}  // namespace trireme::detail
