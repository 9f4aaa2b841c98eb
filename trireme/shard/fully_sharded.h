// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/shard/model_stages.h"
#include "trireme/shard/shard_file.h"
#include "trireme/shard/sharded_parameters.h"

namespace torch::nn {
class Module;
}

namespace trireme {

class GradientScatter;
class ParamUnit;

struct FullyShardedOptions {
  /// true: units are dropped after their forward and gathered again in backward; false: they stay
  /// whole from their forward until the end of backward.
  bool reshard_after_forward = true;
  /// Units are gathered ahead of the one that computes, up to this many elements in total; 0: none.
  int64_t prefetch_elements = int64_t{50} << 20;
  /// Limits prefetching: the elements that are gathered or being gathered, without the root.
  int64_t max_live_elements = int64_t{1} << 30;
  /// Parameters with fewer elements belong to the root, which is gathered once per step.
  int64_t persistence_threshold = 0;
  bool find_unused_parameters = true;  // like DeepSpeed's ignore_unused_parameters
  ReduceOp op = ReduceOp::avg;
  bool tree = false;                        // reproducible mode
  std::optional<at::ScalarType> wire = {};  // gradients between ranks; none: the parameters' dtype
  /// Keeps this rank's shards in a file between uses; gradients stay in memory. Code other than a
  /// ShardedOptimizer that reads or steps shards needs pager().
  std::optional<ShardFileOptions> file = {};
  /// true: each backward is a round of gradients (for your own loop); false: the caller opens and
  /// closes gradients() and calls end_round().
  bool automatic = true;
  /// For stages of a pipeline, of which several micro-batches are under way: units stay whole from
  /// their first forward to the end of the step's last round, or to reshard(). Not with
  /// `automatic`.
  bool whole_for_step = false;
  ModelStages stages = {};  // of the pipeline that this rank has
};

/// ZeRO stage 3: parameters, gradients and optimizer state are split over ranks. A *unit* (a block)
/// is whole only while it computes. LibTorch has no module hooks, so a unit is run through its
/// handle:
///
///   FullySharded sharded(world);
///   for (i …) blocks[i] = fully_shard(std::make_shared<Block>(…), sharded, "blocks." + i);
///   sharded.root(*net);                      // parameters of no unit: whole during the step
///   ShardedOptimizer<torch::optim::AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-3));
///   loop: optimizer.zero_grad();
///         auto y = sharded.run([&](at::Tensor x) { return net->forward(x); }, x);
///         loss(y, target).backward();  optimizer.step();
///
/// Each block is sharded before the next one is made, so memory peaks at the shards and one block.
/// A module keeps its parameters with their shapes and identities, but outside run() they have no
/// data: reading one is a read of address 0 (Gathered makes them readable), and torch::save of the
/// module is a UsageError (thrown by a child module that units and the root are given).
///
/// Gradients: when backward() returns, p.grad() of the parameters is undefined, and this rank's
/// slice of the averaged gradient has been accumulated into grad() of the tensors of shards(). A
/// forward after a backward without an optimizer step in between (no shard and no shard's gradient
/// has changed) is a UsageError: the optimizer was probably made from the module's parameters. For
/// accumulation, call accumulate() with the number of backwards per step.
///
/// Memory per rank: (parameters + gradients + states)/n + the root + the units that are whole at
/// the same time (the one that computes and those gathered ahead) + the gradients of two units and
/// the root.
///
/// Ranks: the same units in the same order, the same forwards and backwards; a unit that one rank
/// skips is a Mismatch, not a hang. Outputs of a unit must not be views of its parameters. A tied
/// weight must be in one unit: put both of its users into the root. Use recompute() inside a unit
/// rather than around it, so that each unit is reduced once and early; both are correct. Use from
/// one thread.
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
    /// Calls fn(inputs) with the unit's parameters whole. Every rank runs the same units in the
    /// same order.
    std::vector<at::Tensor> run(const Fn& fn, const std::vector<at::Tensor>& inputs);
    at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& x);
    const std::string& name() const;

   private:
    friend class FullySharded;
    struct State;
    explicit Unit(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };

  /// Makes a unit of the module's parameters, with rank 0's values, and frees their memory. `name`:
  /// the module's path in the network, which prefixes its parameters' names. The handle is valid as
  /// long as this object.
  Unit& unit(const std::string& name, torch::nn::Module& module);
  /// Takes the parameters that belong to no unit: they are whole from the root's forward to the end
  /// of backward. Must always be called, last, even if no parameter is left.
  void root(torch::nn::Module& module);
  /// Runs the network's forward, in which units run.
  std::vector<at::Tensor> run(const Fn& fn, const std::vector<at::Tensor>& inputs);
  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& fn, const at::Tensor& x);

  void publish() override;
  /// Sets the number of backwards in each of the next steps, with one reduce-scatter per backward.
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
  /// Reduces what backwards inside of no_sync() have accumulated, without another backward: for a
  /// stage of a pipeline (PipelineOptions::reduce_gradients). Between backwards, inside of
  /// no_sync() or not; every rank calls it as often.
  void reduce_accumulated();
  /// Makes the units of a stage (FullyShardedOptions::stages) whole until reshard(), whatever runs
  /// in between. For schedules of a pipeline, which say when (PipelineOptions::unshard, reshard).
  /// Without it, under those that compute a backward in two halves, a unit stays whole from its
  /// first half to reduce_accumulated(): nothing else tells where the last second half is. The root
  /// belongs to the stage where there is one, and is otherwise whole from its first use to the end
  /// of the step. From the first call on no unit is gathered ahead. Every rank calls them in the
  /// same order.
  void unshard(int stage = 0);
  void reshard(int stage = 0);
  /// Makes all parameters whole and readable while it lives (DeepSpeed's GatheredParameters, FSDP's
  /// summon_full_params). All ranks must construct it; run() must not be called meanwhile.
  class TRIREME_API Gathered {
   public:
    explicit Gathered(FullySharded& sharded);
    ~Gathered();
    Gathered(const Gathered&) = delete;

   private:
    FullySharded& sharded_;
  };
  /// Call it on every rank after an exception from forward or backward.
  void reset();

  GradientScatter& gradients();
  /// If not automatic, call it after gradients().close().
  void end_round();

  struct Stats {
    int64_t gathers = 0, prefetched = 0;
    int64_t gather_buffer_bytes = 0;  // memory of whole units
    ShardFileUsage file;
  };
  Stats stats() const;
  /// The buffers of all units and of the root, which every rank has whole.
  const NamedTensors& buffers() const;

 private:
  void complete() override;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Visits the parameters, as slices, and the buffers of the network, under the names that
/// state_of(module) uses for an unsharded module.
TRIREME_API StateWalk state_of(FullySharded& sharded);

}  // namespace trireme
