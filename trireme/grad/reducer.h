// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/bucket_plan.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/rounds/gradient_round.h"
#include "trireme/grad/rounds/round_record.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

namespace trireme {

class BucketMemory;

struct ReducerOptions {
  BucketSizes sizes{};
  ReduceOp op = ReduceOp::avg;
  CommHook hook{};  // empty: all_reduce
  /// Parameters that are reduced when the round closes, however many gradients they got (by index;
  /// empty: none).
  std::vector<bool> delayed{};
};

/// Reduces gradients bucket by bucket while they become ready. Knows no autograd: somebody calls
/// open(), then ready(p) for each contribution of each parameter, then close(). Buckets launch in
/// index order on every rank, whatever order they fill in.
///
/// Gradients live in the buckets: from its first contribution on p.grad() is an alias of its place
/// there (memory from Group::empty, so peers reduce it in place). Between the launch of a bucket
/// and close() it belongs to the collective.
///
/// Ranks: the same parameters in the same order; open and close equally often. One thread.
class TRIREME_API Reducer final : public GradientRound {
 public:
  Reducer(NamedTensors parameters, Group group, ReducerOptions options);
  ~Reducer() override;
  Reducer(const Reducer&) = delete;

  size_t size() const override { return parameters_.size(); }
  const at::Tensor& parameter(size_t i) const override { return parameters_[i].second; }
  const std::string& name(size_t i) const override { return parameters_[i].first; }

  /// Contributions that complete a gradient, by parameter, in the rounds to come; 1 each until it
  /// is called. 0: none will come. kAtClose: as many as do.
  static constexpr int kAtClose = std::numeric_limits<int>::max();
  void expect(std::vector<int> contributions);
  void expect(int contributions);
  void open() override;
  bool is_open() const override { return open_; }
  /// Whether a bucket of the open round has been launched, so the round can no longer be restarted.
  bool any_launched() const { return launched_ > 0; }
  /// The bucket's, while the parameter has no gradient in it.
  GradientPlace offer(size_t parameter) override;
  /// A gradient that is not the bucket's (undefined before, or replaced by the user) is copied
  /// there and rebound. Launches what is full; never waits.
  void ready(size_t parameter) override;
  void accumulated_outside(size_t parameter) override { slots_[parameter].outside = true; }
  /// Launches the buckets that are not full, waits for all, and gives parameters that no rank used
  /// back what they had. The first close lays the buckets out anew in rank 0's order of arrival.
  void close() override;
  /// Collectives under way must not be broken off (the group is finished then).
  void reset() override;

  /// Other buckets from the next round on; gradients that are there move along. Between rounds, on
  /// every rank alike.
  void lay_out(const BucketSizes& sizes, BucketOrder order);
  /// In which order parameters are laid out ("reducer.order"): for hooks whose bits depend on which
  /// elements share a bucket. A loaded one is the next round's. Corrupt if it is no such order.
  void state(StateVisitor& visitor);

  /// p's place in its bucket, in p's shape; not a view for autograd.
  const at::Tensor& gradient(size_t i) const;
  /// What ranks told each other in the last round.
  RoundRecord& record() { return record_; }
  const RoundRecord& record() const { return record_; }
  /// Multiplies the gradients that the last round made.
  void scale(double factor);
  Group& group() { return group_; }

  struct Stats {
    int64_t rounds = 0, launches = 0, bytes = 0;
  };
  const Stats& stats() const { return stats_; }
  /// Parameter indices, bucket by bucket.
  std::vector<std::vector<int>> buckets() const;

 private:
  struct Slot {  // a parameter, in this round
    int expected = 1, got = 0;
    bool lent = false;     // its place, since the last round
    bool outside = false;  // its gradient has a contribution from before this round
    at::Tensor before;     // what an unused parameter had
  };
  struct Flight {  // a bucket, in this round
    size_t waiting = 0;
    Work work;
  };

  [[noreturn]] void refuse_more(size_t parameter);
  void launch_full();
  void launch(size_t bucket);
  void reduce(size_t bucket);
  void fill(size_t parameter);
  void settle(size_t parameter);
  void lay_out_in_rank0_order();

  NamedTensors parameters_;
  Group group_;
  ReducerOptions options_;
  std::unique_ptr<BucketMemory> memory_;
  RoundRecord record_;
  std::vector<Slot> slots_;
  std::vector<Flight> flights_;
  std::vector<int> arrival_;  // in this round
  std::vector<int> order_;    // rank 0's of the first round
  bool open_ = false, record_sent_ = false;
  size_t launched_ = 0;
  Stats stats_;
};

}  // namespace trireme
