// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/shard/model_stages.h"
#include "trireme/shard/sharded_parameters.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

class BucketTuning;
class FullySharded;
class Reducer;
class RoundRecord;

struct LossSum {
  double sum = 0;      // over a rank's samples or tokens
  int64_t weight = 0;  // how many
};

struct GradientOptions {
  size_t bucket_bytes = 0;    // 0: what suits the backend
  bool reproducible = false;  // leaves are added in the tree order of design §3
  bool find_unused = false;   // a parameter need not get a gradient on every rank
  CommHook hook{};            // how a bucket is reduced; empty: all_reduce
  /// Sends nothing before close(), so that clip_own() can come before it (stage 0, and not with
  /// `reproducible`).
  bool clips_own = false;
  /// Changes the bucket layout between steps (and `hook` is its own); null: the layout is fixed.
  std::shared_ptr<BucketTuning> tuning{};
};

/// Gradients of a training step: *sums* over micro-batches and ranks, each of a summed loss. The
/// only division by the global weight is the optimizer's grad_scale (docs/vocabulary.md); a bare
/// DistributedDataParallel computes means instead. The implementation decides which rank holds
/// which part of them afterwards: see owned().
class TRIREME_API Gradients {
 public:
  virtual ~Gradients();
  Gradients(const Gradients&) = delete;

  /// Begins a step; each parameter will get up to `micro_batches` contributions. With kAsManyAsCome
  /// (stage 0) their number is not known yet, and nothing is sent before close().
  virtual void open(int micro_batches) = 0;
  static constexpr int kAsManyAsCome = std::numeric_limits<int>::max();
  /// Whether no gradient of the open step has been sent yet: reopen() then discards them, and the
  /// rank's part of the step starts again. Other ranks are not involved. Stage 0 only.
  virtual bool can_reopen() const { return false; }
  virtual void reopen(int micro_batches);
  /// Call it before the backward of each micro-batch through each of this rank's stages
  /// (model_stages.h); at ZeRO stage 3 without a pipeline, before its forward. `leaf` counts the
  /// backwards of that stage in this step, from 0. Micro-batches may come in reverse order: the
  /// tree of reproducible mode has the same bits then.
  virtual void begin_backward(int stage, int leaf) = 0;
  /// Waits until the gradients of the last backward are added over ranks, where each backward's are
  /// added by themselves (ZeRO stages 2 and 3; stage 1 in reproducible mode). Without a call of it
  /// the next begin_backward() and close() wait; a pipeline's schedule says where.
  virtual void finish_backward() {}
  /// For callers that accumulate into p.grad() without autograd (fp16.emulate): reports that the
  /// gradient of the i-th parameter has received a contribution.
  virtual void ready(size_t i) = 0;
  /// Before close(), with GradientOptions::clips_own: clips this rank's own mean gradient
  /// (inverse_scale × its sum ÷ the weight that it reported) to a norm of at most max_norm ·
  /// √ranks, so that a codec does not keep the excess either. Independent gradients of that norm
  /// have a mean of norm max_norm (Lin et al., "Deep Gradient Compression", ICLR 2018, local
  /// gradient clipping). A gradient that is not finite is left unchanged. Each rank acts on its
  /// own.
  virtual void clip_own(double max_norm, double inverse_scale);
  /// Waits for the sums over ranks. Throws UsageError on all of them, with the names, if not every
  /// rank used every parameter (unless find_unused).
  virtual void close() = 0;

  /// Records this rank's loss so far, which is sent with the last bucket. Call it before each
  /// backward.
  void tell(const LossSum& loss, int stop_asked);
  struct Reports {
    std::vector<double> sums, weights, stops;  // by rank
  };
  /// Returns the ranks' losses, weights and stop requests. Call it after close(); the same on every
  /// rank.
  Reports reports() const;

  /// The first gradient of the last step that was not finite on its own rank, before the sum. The
  /// result is the same on every rank.
  struct NotFinite {
    int rank = -1;  // -1: none
    std::string parameter;
  };
  virtual NotFinite not_finite() const = 0;

  /// The model's parameters that are trained.
  const NamedTensors& parameters() const { return parameters_; }
  /// What this rank's optimizer updates, with gradients: the parameters, or shards of them.
  const NamedTensors& owned();
  /// The whole tensors of which owned() holds parts; null if it holds whole ones.
  std::shared_ptr<const NormParts> norm_parts();
  /// Called after the optimizer has stepped: every rank computes with the new values from then on.
  void publish();
  /// ZeRO: null at stage 0.
  virtual ShardedParameters* sharded() { return nullptr; }

  /// Visits which gradients are reduced together, for hooks whose bits depend on it.
  virtual void state(StateVisitor& /*visitor*/) {}
  /// The record that ranks exchange with each step. Facts must be added before the first step.
  RoundRecord& record() { return *record_; }

  /// Bytes of memory that gradients occupy on this rank after a step.
  virtual int64_t bytes();
  /// Stage 0 only.
  virtual const Reducer& reducer() const;
  /// The number of gradient buffers that the tree keeps on this rank besides the buckets.
  virtual int tree_buffers(int micro_batches) const = 0;

 protected:
  explicit Gradients(NamedTensors parameters) : parameters_(std::move(parameters)) {}
  /// Called once, before the first step.
  void ride_on(RoundRecord& record);
  /// This rank's weight in the open step so far.
  int64_t own_weight() const { return loss_.weight; }
  NamedTensors parameters_;

 private:
  RoundRecord* record_ = nullptr;
  LossSum loss_;
  int stop_asked_ = 0;
  size_t sum_ = 0, weight_ = 0, stop_ = 0;  // facts of the record
};

/// Makes gradients that every rank holds whole. Checks that ranks hold the same parameters and
/// broadcasts rank 0's values. Every rank must call it.
TRIREME_API std::unique_ptr<Gradients> whole_gradients(NamedTensors parameters,
                                                       const NamedTensors& buffers, Group group,
                                                       GradientOptions options = {});

struct ShardedGradientOptions {
  ZeroStage stage = ZeroStage::gradients;  // or optimizer
  size_t bucket_bytes = 0;
  bool reproducible = false;
  bool find_unused = false;
  std::optional<at::ScalarType> wire{};  // dtype between ranks; none: the parameters'
  bool share_weights = false;            // one copy for all ranks of the host
  ModelStages stages{};
};
/// Makes the gradients of ZeRO stages 1 and 2. In reproducible mode leaves are distributed in
/// strides (data/global_batch.h).
TRIREME_API std::unique_ptr<Gradients> sharded_gradients(NamedTensors parameters,
                                                         const NamedTensors& buffers,
                                                         ShardGroups groups,
                                                         const ShardedGradientOptions& options);
/// Makes the gradients of ZeRO stage 3. `sharded` has the model's units and root, and is not
/// automatic; `stages`: how many of a pipeline this rank has.
TRIREME_API std::unique_ptr<Gradients> fully_sharded_gradients(
    NamedTensors parameters, std::unique_ptr<FullySharded> sharded, int stages);

}  // namespace trireme
