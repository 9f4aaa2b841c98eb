// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/shard/shard_file.h"
#include "trireme/shard/sharded_parameters.h"

namespace torch::nn {
class Module;
}

namespace trireme {

class GradientScatter;
class ParamUnit;

struct FullyShardedOptions {
  /// Units are dropped behind their forward and gathered again in backward; false: whole from their
  /// forward until the end of backward.
  bool reshard_after_forward = true;
  /// Units are asked for ahead of the one that computes as long as they have so many elements
  /// together; 0: none.
  int64_t prefetch_elements = int64_t{50} << 20;
  int64_t max_live_elements = int64_t{1} << 30;  // whole or coming, beside the root; limits that
  /// Parameters with fewer elements are left to the root: gathered once a step.
  int64_t persistence_threshold = 0;
  bool find_unused_parameters = true;  // as DeepSpeed's ignore_unused_parameters
  ReduceOp op = ReduceOp::avg;
  bool tree = false;                        // reproducible mode
  std::optional<at::ScalarType> wire = {};  // gradients between ranks; none: the parameters' dtype
  /// This rank's shards lie in a file between uses; gradients stay in memory. Where shards are read
  /// and stepped otherwise than by a ShardedOptimizer: home().
  std::optional<ShardFileOptions> file = {};
  /// A backward is a round of gradients (a bare loop); false: who drives it opens and closes
  /// gradients() and calls end_round().
  bool automatic = true;
};

/// ZeRO stage 3: parameters, gradients and optimizer state are split over ranks. A *unit* (a block)
/// is whole only while it computes. LibTorch has no module hooks, so a unit is run through its
/// handle:
///
///   FullySharded sharded(world);
///   for (i …) blocks[i] = fully_shard(std::make_shared<Block>(…), sharded, "blocks." + i);
///   sharded.root(*net);                      // what no unit holds: whole during the step
///   ShardedOptimizer<torch::optim::AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-3));
///   loop: optimizer.zero_grad();
///         auto y = sharded.run([&](at::Tensor x) { return net->forward(x); }, x);
///         loss(y, target).backward();  optimizer.step();
///
/// Each block becomes shards before the next one is made, so memory peaks at the shards and one
/// block. A module keeps its parameters with their shapes and their identity; outside of run() they
/// have no bytes: reading one then is a read of address 0 (Gathered makes them readable), and
/// torch::save of the module a UsageError (units and the root get a child that says so).
///
/// Gradients: when backward() returns, p.grad() of parameters is undefined and shards() have their
/// part of the mean, added to what they had. A forward after a backward that no optimizer answered
/// (no shard and no shard's gradient has changed) is a UsageError: it was made of the module's
/// parameters, say. Accumulation: tell accumulate() how many backwards a step has.
///
/// Memory per rank: (parameters + gradients + states)/n + the root + the units that are whole at
/// once (the one that computes and those asked for ahead) + the gradients of two units and the
/// root.
///
/// Ranks: the same units in the same order, the same forwards and backwards; a unit that a rank
/// skips is a Mismatch, not a hang. Outputs of a unit must not be views of its parameters. A tied
/// weight lies in one unit: put both users into the root. recompute() inside of a unit, not around
/// it, keeps one reduction a unit early; both are right. One thread.
///
/// Source: torch.distributed.fsdp.fully_shard; Zhao et al., PyTorch FSDP, 2023.
class TRIREME_API FullySharded final : public ShardedParameters {
 public:
  explicit FullySharded(ShardGroups groups, FullyShardedOptions options = {});
  ~FullySharded() override;

  using Fn = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  class TRIREME_API Unit {
   public:
    ~Unit();
    /// fn(inputs) with the unit's parameters whole. Every rank runs the same units in the same
    /// order.
    std::vector<at::Tensor> run(const Fn& fn, const std::vector<at::Tensor>& inputs);
    at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& x);
    const std::string& name() const;

   private:
    friend class FullySharded;
    struct State;
    explicit Unit(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };

  /// The module's parameters, as rank 0 has them, become a unit and lose their bytes. `name`: the
  /// module's path in the network, before its parameters' own names. The handle is valid as long as
  /// this object.
  Unit& unit(const std::string& name, torch::nn::Module& module);
  /// The parameters that no unit holds: whole from the root's forward to the end of backward. Last,
  /// and always, even if none is left.
  void root(torch::nn::Module& module);
  /// The network's forward, inside of which units run.
  std::vector<at::Tensor> run(const Fn& fn, const std::vector<at::Tensor>& inputs);
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& x);

  void publish() override;
  /// The next steps have so many backwards each, one reduce-scatter a backward.
  void accumulate(int backwards);
  /// While the guard lives, backwards keep whole gradients in p.grad() and nothing is reduced.
  class TRIREME_API NoSync {
   public:
    explicit NoSync(FullySharded& sharded);
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    FullySharded& sharded_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  /// Everything is whole while it lives, to be read (DeepSpeed's GatheredParameters, FSDP's
  /// summon_full_params). All ranks make it; no run() meanwhile.
  class TRIREME_API Gathered {
   public:
    explicit Gathered(FullySharded& sharded);
    ~Gathered();
    Gathered(const Gathered&) = delete;

   private:
    FullySharded& sharded_;
  };
  /// After an exception out of forward or backward, on every rank.
  void reset();

  GradientScatter& gradients();
  /// Not automatic: after gradients().close().
  void end_round();

  struct Stats {
    int64_t gathers = 0, prefetched = 0;
    int64_t gather_buffer_bytes = 0;  // memory that whole units lie in
    ShardFileUse file;
  };
  Stats stats() const;

 private:
  void complete() override;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme
