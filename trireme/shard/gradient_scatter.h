// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/grad/gradient_tree.h"
#include "trireme/grad/rounds/gradient_round.h"
#include "trireme/grad/rounds/non_finite.h"
#include "trireme/grad/rounds/round_record.h"
#include "trireme/shard/flat_parameters.h"
#include "trireme/shard/gather_buffer_pool.h"

namespace trireme {

struct ScatterOptions {
  ReduceOp op = ReduceOp::avg;
  /// When a flat buffer is reduced: once all its gradients are there and those before it have been
  /// launched (the order of flat buffers is the same on every rank); or when launch() names it
  /// (units of stage 3, whose order is that of the graph).
  enum class Leave { when_full, when_launched } leave = Leave::when_full;
  /// true (stage 1): each flat buffer has a permanent gather buffer, in which gradients accumulate
  /// and which contains this rank's part. false: gather buffers are pooled, and this rank's part
  /// has memory of its own.
  bool keep_gather_buffers = false;
  /// Flat buffers in flight before the oldest is waited for. On a device a hook waits for no peer:
  /// where the group's wait() would, it takes a gather buffer more.
  size_t gather_buffers_in_flight = 2;
  /// Reproducible mode: rounds of a step are leaves, added along the tree of design §3.
  bool tree = false;
  /// The stage of each flat buffer, where a rank has several (model_stages.h); none: all are of
  /// stage 0.
  std::vector<int> stages = {};
  /// Ranks that hold the same shard (hybrid sharding); none: a group of one.
  Group replicas{};
  Group world{};                         // all ranks, for the record; none: the group
  std::optional<at::ScalarType> wire{};  // dtype between ranks; none: the parameters'
};

/// Reduce-scatters gradients one flat buffer at a time as they become ready: afterwards each rank
/// has its part of the sum (or mean), added to the previous grad() of its shards
/// (FlatParameters::shards), and p.grad() of the parameters is undefined.
///
/// A step may have several rounds (begin_step): micro-batches, and of each the stages of a pipeline
/// that this rank has, in any order. Ranks exchange the record in the last one.
///
/// Ranks: the same flat buffers in the same order; open and close equally often; with when_launched
/// the same calls of launch(). One thread. Source: ZeRO, Rajbhandari et al. 2020.
class GradientScatter final : public GradientRound {
 public:
  /// The flats require gradients and outlive this object.
  GradientScatter(std::vector<FlatParameters*> flats, Group group, ScatterOptions options);
  ~GradientScatter() override;

  size_t size() const override { return slots_.size(); }
  const at::Tensor& parameter(size_t i) const override;
  const std::string& name(size_t i) const override;

  /// Contributions that complete a gradient, of every parameter, in each round to come.
  void expect(int contributions);
  /// The next `leaves` rounds of each of `stages` stages make up one step.
  void begin_step(int leaves, int stages = 1);
  /// The next round of one stage. A stage has its rounds in the order of `leaf`.
  void open(int stage, int leaf);
  /// The next round, where there is one stage.
  void open() override;
  bool is_open() const override { return open_; }
  void ready(size_t i) override;
  /// Nothing to do: p.grad() is undefined between rounds, so anything in it was accumulated outside
  /// a round.
  void accumulated_outside(size_t /*i*/) override {}
  /// when_launched: this flat buffer takes part in the current round or, outside one, in the next.
  void touch(size_t buffer);
  /// when_launched: all contributions to this flat buffer have arrived.
  void launch(size_t buffer);
  /// Launches it once all its gradients are there.
  void launch_when_full(size_t buffer);
  bool full(size_t buffer) const { return buffers_[buffer].waiting == 0; }
  void close() override;
  void reset() override;

  /// Whether the last round was a step's last and its record has been read.
  bool step_done() const { return record_sent_ && !open_; }
  /// The record of the last step.
  const RoundRecord& record() const { return record_; }
  RoundRecord& record() { return record_; }
  using Found = NonFinite;
  Found not_finite() const;

  struct Stats {
    int64_t rounds = 0, launches = 0, bytes = 0;
    int64_t gather_buffer_bytes = 0, shard_bytes = 0;  // memory
  };
  Stats stats() const;
  const std::vector<FlatParameters*>& flats() const { return flats_; }

 private:
  struct FlatBuffer {
    size_t first = 0;                // index of its first parameter
    at::Tensor home;                 // this rank's part of the gradient
    at::Tensor gather_buffer;        // everybody's, while gradients arrive and are reduced
    std::vector<at::Tensor> places;  // members' in the gather buffer
    at::Tensor out, before;          // of the call under way; stage 1: what home held
    size_t waiting = 0;
    bool touched = false, touched_outside = false, launched = false, adds = false;
    bool leaves_when_full = false;
    bool filled = false;  // home has a sum of this step
    Work work;
  };
  struct Slot {
    size_t buffer = 0, member = 0;
    int got = 0;
    bool used = false;           // in a round of this step
    std::optional<bool> finite;  // where it was seen on the way in
  };

  at::ScalarType wire_of(size_t buffer) const;
  int stage_of(size_t buffer) const {
    return options_.stages.empty() ? 0 : options_.stages[buffer];
  }
  void take_gather_buffer(size_t buffer);
  void keep_few_in_flight();
  void prepare(size_t buffer);
  void fill(size_t i);
  void leave(size_t buffer);
  void leave_full();
  void send_record();
  void scattered(size_t buffer);
  void settle(size_t buffer);
  void settle_oldest();
  void bind_shards();
  [[noreturn]] void refuse(const std::string& what);

  std::vector<FlatParameters*> flats_;
  Group group_;
  ScatterOptions options_;
  RoundRecord record_;
  RoundRecord::Fact not_finite_;
  GatherBufferPool pool_;
  std::optional<GradientTree> tree_;
  std::vector<FlatBuffer> buffers_;
  std::vector<Slot> slots_;
  std::deque<size_t> under_way_;
  int expected_ = 1, leaves_ = 1, rounds_ = 1, round_ = 0;
  bool open_ = false, record_sent_ = false;
  size_t next_ = 0;           // when_full: the flat buffer that leaves next
  FirstNonFinite first_bad_;  // of this rank, in this step
  Stats stats_;
};

}  // namespace trireme
