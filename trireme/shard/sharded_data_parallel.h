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
  /// Ranks of one host (local backend) have one copy of the weights, in which each updates its
  /// part: 1/n of the memory, and nothing is gathered. Nobody else may write to them, and between
  /// the end of a backward and the end of step() nobody may read them.
  bool share_weights = false;
};

/// ZeRO stages 1 and 2 around any module, a TorchScript one or a plain list of tensors: parameters
/// stay whole on every rank, the optimizer's state is split, in stage 2 gradients too.
///
///   ShardedDataParallel zero(net, world);
///   ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
///   torch::optim::AdamWOptions(1e-3)); loop: optimizer.zero_grad(); loss(net->forward(x),
///   y).backward(); optimizer.step();
///
/// When backward() returns, p.grad() of the module's parameters is undefined and the shards have
/// their part of the mean, added to what they had. Stage 1 has memory for whole gradients, which
/// each rank's part stays in; stage 2 for the part and two buckets.
///
/// Construction, ranks, threads and errors: as DistributedDataParallel. The module's parameters
/// move into memory that peers read; buffers are rank 0's at construction and each rank's own after
/// it (SyncBatchNorm, where they must agree).
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

  /// What this rank's optimizer owns.
  ShardedParameters& sharded();

  /// While the guard lives, backwards accumulate whole gradients in p.grad(); the first one after
  /// it reduces the sum of all.
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
  /// After an exception out of backward, on every rank.
  void reset();
  const GradientScatter& gradients() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
