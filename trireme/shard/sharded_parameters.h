// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/shard/parameter_home.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

/// What is split over ranks (ZeRO, Rajbhandari et al. 2020): bytes a parameter and rank with AdamW
/// in float32 are 16 undivided; 8 + 8/n; 4 + 12/n; 16/n.
enum class ZeroStage {
  none = 0,
  optimizer = 1,   // the optimizer's state
  gradients = 2,   // and gradients
  parameters = 3,  // and parameters (shard/fully_sharded.h)
};

/// Over whom. `shards` split everything; `replicas` are the ranks that hold the same part (hybrid
/// sharding: shards inside a host, replicas across), a group of one if there are none; `world` is
/// both.
struct ShardGroups {
  ShardGroups(Group world) : shards(world), world(std::move(world)) {}
  ShardGroups(Group shards, Group replicas, Group world)
      : shards(std::move(shards)), replicas(std::move(replicas)), world(std::move(world)) {}
  Group shards, replicas, world;
};

class FlatParameters;

/// This rank's part of a model whose parameters, or what belongs to them, are split over ranks.
/// After a backward grad() of each shard is its part of the mean gradient.
///
///   optimizer(sharded.shards());  loop: forward, backward, optimizer.step(), sharded.publish();
///   with ShardedOptimizer<torch::optim::AdamW> (shard/sharded_optimizer.h) as any torch optimizer.
///
/// One thread; every rank makes the same calls.
class TRIREME_API ShardedParameters {
 public:
  virtual ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;

  /// 1-D leaves, under the names of the parameters they are parts of; those that require a
  /// gradient. A rank that owns none gets one empty tensor. What an optimizer is made of.
  const NamedTensors& shards() {
    complete();
    return shards_;
  }
  /// Brings shards that lie in a file (FullyShardedOptions::file) to whoever reads or steps them:
  /// OffloadOptions::parameters, held_optimizer(). Null: they are in memory at all times.
  std::shared_ptr<ParameterHome> home();
  /// … without names, for torch::optim.
  std::vector<at::Tensor> parameters();
  /// The optimizer has stepped: from the next forward on all ranks compute with the new values.
  virtual void publish() = 0;
  /// For norms of whole parameters (LAMB, LARS, clipping).
  std::shared_ptr<const NormParts> norm_parts() {
    complete();
    return parts_;
  }
  /// torch.nn.utils.clip_grad_norm_ over all ranks' shards (optim/clip.h): multiplies gradients in
  /// place, gives the norm before. Every rank calls it.
  double clip_grad_norm_(double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
  /// torch.nn.utils.clip_grad_value_.
  void clip_grad_value_(double clip_value);
  /// Drops the shards' gradients.
  void zero_grad();
  /// Walks the parameters as slices of whole ones, flat: "model.<name>", of this rank.
  void state(StateVisitor& visitor);
  /// Presents a state of shards (an optimizer's) as slices of whole parameters: names that end in
  /// ".<parameter>" get the place of this rank's part.
  void sharded_state(StateVisitor& visitor, const StateWalk& walk) const;
  const ShardGroups& groups() const { return groups_; }
  /// Further names of what shards() has under its first one (tied weights). Patterns of an
  /// optimizer that is made of shards find them by with_first_names(patterns, tied()).
  const TiedNames& tied() {
    complete();
    return tied_;
  }
  /// LibTorch's optimizer could not step on the shards: the group is ended, and this rank throws
  /// UsageError.
  [[noreturn]] void refuse_step(const std::string& why);

 protected:
  explicit ShardedParameters(ShardGroups groups);
  /// Tells all ranks, whatever they wait in; throws.
  [[noreturn]] void end_with(const std::string& why);
  /// … for a parameter that was given other values behind a backward: the optimizer has stepped
  /// on the old ones.
  [[noreturn]] void refuse_late(const std::string& parameter);
  /// Before shards are told: all of them must be there, with the values that parameters were given
  /// since (torch::load()).
  virtual void complete() {}
  /// Once, when all flats are there.
  void set_flats(const std::vector<FlatParameters*>& flats);

  ShardGroups groups_;
  std::vector<FlatParameters*> all_flats_;
  NamedTensors shards_;
  TiedNames tied_;
  std::shared_ptr<ParameterHome> home_;
  std::shared_ptr<const NormParts> parts_;

 private:
  struct Place {
    std::vector<int64_t> shape;
    int64_t begin = 0;
  };
  std::map<std::string, Place> places_;
};

}  // namespace trireme
