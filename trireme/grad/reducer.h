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

/// Reduces gradients bucket by bucket as they become ready. It knows nothing of autograd: its
/// caller calls open(), then ready(p) for each contribution to each parameter's gradient, then
/// close(). Buckets are launched in index order on every rank, whatever the order in which they
/// fill.
///
/// Gradients live in the buckets: from the first contribution on, p.grad() is an alias of its slot
/// there (memory from Group::empty, so peers reduce it in place). From its launch to close(), a
/// bucket belongs to the collective.
///
/// Ranks hold the same parameters in the same order, and open and close equally often. One thread.
class TRIREME_API Reducer final : public GradientRound {
 public:
  Reducer(NamedTensors parameters, Group group, ReducerOptions options);
  ~Reducer() override;
  Reducer(const Reducer&) = delete;

  size_t size() const override { return parameters_.size(); }
  const at::Tensor& parameter(size_t i) const override { return parameters_[i].second; }
  const std::string& name(size_t i) const override { return parameters_[i].first; }

  /// Sets the number of contributions that complete each parameter's gradient in the coming rounds;
  /// 1 each until it is called. 0: none will come. kAtClose: any number; the gradient is complete
  /// when the round closes.
  static constexpr int kAtClose = std::numeric_limits<int>::max();
  void expect(std::vector<int> contributions);
  void expect(int contributions);
  void open() override;
  bool is_open() const override { return open_; }
  /// Whether a bucket of the open round has been launched, so the round can no longer be restarted.
  bool any_launched() const { return launched_ > 0; }
  /// Offers the parameter's slot in its bucket, once per round, if no gradient has been written
  /// there and the bucket has not been launched.
  GradientPlace offer(size_t parameter) override;
  /// A gradient that does not live in the bucket (it was undefined before, or the user replaced it)
  /// is copied there and rebound. Launches full buckets; never waits.
  void ready(size_t parameter) override;
  void accumulated_outside(size_t parameter) override { slots_[parameter].outside = true; }
  /// Launches the buckets that are not full, waits for all of them, and restores the previous
  /// gradient of parameters that no rank used. The first close rearranges the buckets in the order
  /// in which rank 0's gradients arrived.
  void close() override;
  /// Waits for the collectives in flight, because cancelling one would end the group.
  void reset() override;

  /// Rearranges the buckets from the next round on; existing gradients move along. Call it between
  /// rounds, with the same arguments on every rank.
  void lay_out(const BucketSizes& sizes, BucketOrder order);
  /// Visits the order in which parameters are laid out ("reducer.order"), for hooks whose bits
  /// depend on which elements share a bucket. A loaded order applies from the next round on.
  /// Corrupt if it is not a permutation.
  void state(StateVisitor& visitor);

  /// The parameter's slot in its bucket, in the parameter's shape; to autograd it is not a view.
  const at::Tensor& gradient(size_t i) const;
  /// What ranks exchanged in the last round in addition to gradients.
  RoundRecord& record() { return record_; }
  const RoundRecord& record() const { return record_; }
  /// Multiplies the gradients of the last round by `factor`.
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
    bool lent = false;     // its slot was offered since the last round
    bool outside = false;  // its gradient has a contribution from before this round
    at::Tensor before;     // the previous gradient of an unused parameter
  };
  struct Flight {  // a bucket, in this round
    size_t waiting = 0;
    Work work;
  };

  [[noreturn]] void refuse_more(size_t parameter);
  void launch_full(bool closing);
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
