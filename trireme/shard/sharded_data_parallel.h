// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/shard/sharded_parameters.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace trireme {

class GradientScatter;

struct ShardedDataParallelOptions {
  ZeroStage stage = ZeroStage::gradients;  // or optimizer
  size_t bucket_bytes = 0;                 // 0: what suits the backend
  bool find_unused_parameters = false;     // as DdpOptions'
  /// The ranks of a host (local backend) share one copy of the weights, in which each updates its
  /// part: 1/n of the memory, and no gathering. Nothing else may write to the weights, and nothing
  /// may read them between the end of a backward and the end of step().
  bool share_weights = false;
};

/// ZeRO stages 1 and 2 for any module, a TorchScript module or a plain list of tensors: parameters
/// stay whole on every rank, the optimizer's state is split, and in stage 2 so are gradients.
///
///   using AdamW = torch::optim::AdamW;
///   ShardedDataParallel zero(net, world);
///   ShardedOptimizer<AdamW> optimizer(zero.sharded(), torch::optim::AdamWOptions(1e-3));
///   loop: optimizer.zero_grad();
///         loss(net->forward(x), y).backward();
///         optimizer.step();
///
/// When backward() returns, p.grad() of the module's parameters is undefined, and this rank's slice
/// of the averaged gradient has been accumulated into grad() of the tensors of sharded().shards().
/// Stage 1 allocates whole gradients, which contain that slice; stage 2 allocates the slice plus
/// two buckets.
///
/// Checkpoints: state_of(module), as without ZeRO, and state_of(optimizer) of the ShardedOptimizer.
///
/// Construction, ranks, threads and errors: as for DistributedDataParallel. The module's parameters
/// move into memory that peers can read; buffers are set to rank 0's at construction and are each
/// rank's own afterwards (use SyncBatchNorm if they must agree).
class TRIREME_API ShardedDataParallel {
 public:
  ShardedDataParallel(torch::nn::Module& module, ShardGroups groups,
                      ShardedDataParallelOptions options = {});
  template <class Holder>
  requires requires(Holder& h) { static_cast<torch::nn::Module&>(*h); }
  ShardedDataParallel(Holder& module, ShardGroups groups, ShardedDataParallelOptions options = {})
      : ShardedDataParallel(static_cast<torch::nn::Module&>(*module), std::move(groups),
                            std::move(options)) {}
  ShardedDataParallel(torch::jit::Module& module, ShardGroups groups,
                      ShardedDataParallelOptions options = {});
  ShardedDataParallel(NamedTensors parameters, NamedTensors buffers, ShardGroups groups,
                      ShardedDataParallelOptions options = {});
  ~ShardedDataParallel();
  ShardedDataParallel(const ShardedDataParallel&) = delete;

  /// The shards that this rank's optimizer owns.
  ShardedParameters& sharded();

  /// While the guard lives, backwards accumulate whole gradients in p.grad(); the first backward
  /// after it reduces the sum of all of them.
  class TRIREME_API NoSync {
   public:
    explicit NoSync(ShardedDataParallel& zero);
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    ShardedDataParallel& zero_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// Reduces what backwards inside of no_sync() have accumulated, without another backward: for a
  /// stage of a pipeline (PipelineOptions::reduce_gradients). Between backwards, inside of
  /// no_sync() or not; every rank calls it as often.
  void reduce_accumulated();
  /// Call it on every rank after an exception from backward.
  void reset();
  const GradientScatter& gradients() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
