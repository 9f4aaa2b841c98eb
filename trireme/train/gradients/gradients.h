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
  bool reproducible = false;  // leaves are added along the tree of design §3
  bool find_unused = false;   // a parameter need not get a gradient on every rank
  CommHook hook{};            // how a bucket is reduced; empty: all_reduce
  /// Nothing leaves before close(), so that clip_own() can come before it (stage 0, and not with
  /// `reproducible`).
  bool clips_own = false;
  /// Lays buckets out anew between steps (and `hook` is its own); null: they stay as they are.
  std::shared_ptr<BucketTuning> tuning{};
};

/// Gradients of a training step: *sums* over micro-batches and ranks, each of a summed loss. The
/// one division by the global weight is the optimizer's grad_scale (docs/vocabulary.md); a bare
/// DistributedDataParallel takes means instead. Who holds which part of them afterwards is the
/// implementation's: see owned().
class TRIREME_API Gradients {
 public:
  virtual ~Gradients();
  Gradients(const Gradients&) = delete;

  /// A step begins; each parameter will get up to `micro_batches` contributions. kAsManyAsCome
  /// (stage 0): nobody knows how many yet; nothing leaves before close().
  virtual void open(int micro_batches) = 0;
  static constexpr int kAsManyAsCome = std::numeric_limits<int>::max();
  /// No gradient of the open step has left this rank: reopen() forgets them, and the rank's part
  /// of the step begins again. Other ranks need not know. Stage 0 alone.
  virtual bool can_reopen() const { return false; }
  virtual void reopen(int micro_batches);
  virtual void begin_micro_batch(int i) = 0;
  /// For who accumulates into p.grad() without autograd (fp16.emulate): the gradient of the i-th
  /// parameter has got a contribution.
  virtual void ready(size_t i) = 0;
  /// Before close(), where GradientOptions::clips_own: this rank's own mean gradient
  /// (inverse_scale × its sum ÷ the weight that it told) is brought to a norm of at most
  /// max_norm · √ranks, so that what does not fit is not kept by a codec either. Independent
  /// gradients of that norm have a mean of norm max_norm (Lin et al., "Deep Gradient Compression",
  /// ICLR 2018, local gradient clipping). One that is not finite stays as it is. Each rank for
  /// itself.
  virtual void clip_own(double max_norm, double inverse_scale);
  /// Waits for the sums over ranks. UsageError on all of them, with the names, for parameters that
  /// not every rank used (unless find_unused).
  virtual void close() = 0;

  /// This rank's loss so far, to ride with the last bucket: before each backward.
  void tell(const LossSum& loss, int stop_asked);
  struct Reports {
    std::vector<double> sums, weights, stops;  // by rank
  };
  /// After close(), on every rank.
  Reports reports() const;

  /// The first gradient of the last step that was not finite on its own rank, before the sum: the
  /// same on every rank.
  struct NotFinite {
    int rank = -1;  // -1: none
    std::string parameter;
  };
  virtual NotFinite not_finite() const = 0;

  /// The model's parameters that are trained.
  const NamedTensors& parameters() const { return parameters_; }
  /// What this rank's optimizer steps on, with gradients: the parameters, or shards of them.
  const NamedTensors& owned();
  /// Of which wholes those are parts; null: they are whole.
  std::shared_ptr<const NormParts> norm_parts();
  /// The optimizer has stepped: every rank computes with the new values from here on.
  void publish();
  /// ZeRO: null at stage 0.
  virtual ShardedParameters* sharded() { return nullptr; }

  /// Which gradients are reduced together, for hooks whose bits depend on it.
  virtual void state(StateVisitor& /*visitor*/) {}
  /// What ranks tell each other with each step; facts are added before the first.
  RoundRecord& record() { return *record_; }

  /// Memory that gradients lie in after a step, on this rank.
  virtual int64_t bytes();
  /// Stage 0 alone.
  virtual const Reducer& reducer() const;
  /// Gradient buffers that the tree keeps on this rank beside the buckets.
  virtual int tree_buffers(int micro_batches) const = 0;

 protected:
  explicit Gradients(NamedTensors parameters) : parameters_(std::move(parameters)) {}
  /// Before the first step, once.
  void ride_on(RoundRecord& record);
  /// Of the open step, as told so far.
  int64_t own_weight() const { return loss_.weight; }
  NamedTensors parameters_;

 private:
  RoundRecord* record_ = nullptr;
  LossSum loss_;
  int stop_asked_ = 0;
  size_t sum_ = 0, weight_ = 0, stop_ = 0;  // facts of the record
};

/// Every rank has them whole. Checks that ranks hold the same parameters and takes rank 0's.
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
};
/// ZeRO stages 1 and 2. Reproducible mode: leaves are dealt strided (data/global_batch.h).
TRIREME_API std::unique_ptr<Gradients> sharded_gradients(NamedTensors parameters,
                                                         const NamedTensors& buffers,
                                                         ShardGroups groups,
                                                         const ShardedGradientOptions& options);
/// ZeRO stage 3: the model's units and root are there, and it is not automatic.
TRIREME_API std::unique_ptr<Gradients> fully_sharded_gradients(
    NamedTensors parameters, std::unique_ptr<FullySharded> sharded);

}  // namespace trireme
