// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/bucket_plan.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

struct ReducerOptions {
  BucketSizes sizes;
  ReduceOp op = ReduceOp::avg;
  CommHook hook{};  // empty: all_reduce
};

/// Reduces gradients bucket by bucket while they become ready. Knows no autograd: somebody calls
/// open(), then ready(p) for each contribution of each parameter, then close(). Buckets launch in
/// index order on every rank, whatever order they fill in.
///
/// Gradients live in the buckets: after bind(p), p.grad() is an alias of its place there (memory
/// from Group::empty, so peers reduce it in place). Between the launch of a bucket and close() it
/// belongs to the collective.
///
/// Ranks: the same parameters in the same order; open and close equally often. One thread.
class TRIREME_API Reducer {
 public:
  Reducer(NamedTensors parameters, Group group, ReducerOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;

  /// A round begins: each parameter is expected to be ready `contributions` times.
  void open(int contributions = 1);
  bool is_open() const { return open_; }
  /// One contribution to p's gradient is complete and lies in p.grad(). A gradient that is not the
  /// bucket's (undefined before, or replaced by the user) is copied there and rebound. Launches
  /// what is full; never waits.
  void ready(size_t parameter);
  bool all_ready() const { return full_buckets_ == buckets_.size(); }
  /// Flushes buckets that are not full, waits for all, and gives parameters that no rank used back
  /// what they had. The first close rebuilds the buckets in rank 0's order of arrival.
  void close();
  /// Forgets a round that an exception broke off. Collectives under way must not be (the group is
  /// finished then).
  void reset();

  size_t size() const { return parameters_.size(); }
  const at::Tensor& parameter(size_t i) const { return parameters_[i].second; }
  const std::string& name(size_t i) const { return parameters_[i].first; }
  /// p's place in its bucket, in p's shape; not a view for autograd.
  const at::Tensor& gradient(size_t i) const { return slots_[i].alias; }
  bool used_by_any(size_t i) const { return slots_[i].used_by_any; }  // in the last round
  Group& group() { return group_; }

  /// Sum over ranks of what each gave to weigh_in() in this round: rides in the last bucket's tail.
  void weigh_in(double weight) { weight_ = weight; }
  double total_weight() const { return total_weight_; }

  struct Stats {
    int64_t rounds = 0, launches = 0, bytes = 0;
  };
  const Stats& stats() const { return stats_; }
  /// Parameter indices, bucket by bucket.
  std::vector<std::vector<int>> buckets() const;

 private:
  struct Slot {  // a parameter's place
    size_t bucket = 0;
    int64_t offset = 0;
    at::Tensor alias;
    int contributions = 0;
    bool used_by_any = false;
    at::Tensor before;  // what an unused parameter had
    bool had_gradient = false;
  };
  struct Bucket {
    std::vector<int> members;
    at::Tensor flat;  // gradients, then the tail: a used flag for each member, then one weight
    int64_t gradients = 0;
    size_t waiting = 0;  // members that are not ready
    bool flushed = false;
    Work work;
  };

  void allocate_blocks();
  void build(const std::vector<int>& order);
  void rebuild_in_rank0_order();
  void fill_unused(Bucket& bucket);
  void launch_full();
  void launch(size_t index);
  void read_tail(Bucket& bucket);

  NamedTensors parameters_;
  Group group_;
  ReducerOptions options_;
  std::vector<Slot> slots_;
  std::map<at::ScalarType, at::Tensor> blocks_;
  std::vector<Bucket> buckets_;
  std::vector<int> arrival_;
  bool open_ = false, rebuilt_ = false;
  int contributions_ = 1;
  size_t next_launch_ = 0, full_buckets_ = 0;
  double weight_ = 0, total_weight_ = 0;
  Stats stats_;
};

}  // namespace trireme
