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
#include "trireme/shard/parameter_pager.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"
#include "trireme/tensor/tied_tensors.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace trireme {

/// What is split over ranks (ZeRO, Rajbhandari et al. 2020). With AdamW in float32, the bytes per
/// parameter and rank are, by stage: 16; 8 + 8/n; 4 + 12/n; 16/n.
enum class ZeroStage {
  none = 0,
  optimizer = 1,   // the optimizer's state
  gradients = 2,   // and gradients
  parameters = 3,  // and parameters (shard/fully_sharded.h)
};

/// The groups over which to split. The ranks of `shards` divide everything among themselves;
/// `replicas` are the ranks that hold the same part (hybrid sharding: shards within a host,
/// replicas across hosts), or a group of one; `world` is all ranks.
struct ShardGroups {
  ShardGroups(Group world) : shards(world), world(std::move(world)) {}
  ShardGroups(Group shards, Group replicas, Group world)
      : shards(std::move(shards)), replicas(std::move(replicas)), world(std::move(world)) {}
  Group shards, replicas, world;
};

class FlatParameters;

/// This rank's part of a model whose parameters, gradients or optimizer state are split over ranks.
/// After a backward, grad() of each shard is its part of the mean gradient.
///
///   optimizer(sharded.shards());  loop: forward, backward, optimizer.step(), sharded.publish();
///   or ShardedOptimizer<torch::optim::AdamW> (shard/sharded_optimizer.h), used like any torch
///   optimizer.
///
/// Use from one thread; every rank makes the same calls.
class TRIREME_API ShardedParameters {
 public:
  virtual ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;

  /// The tensors to make an optimizer from: 1-D leaves under the names of the parameters to which
  /// they belong, for those that require a gradient. A rank that owns none gets one empty tensor.
  const NamedTensors& shards() {
    complete();
    return shards_;
  }
  /// Reads shards that are kept in a file (FullyShardedOptions::file) into memory for code that
  /// reads or steps them: pass it as OffloadOptions::parameters or to paged_optimizer(). Null if
  /// they are always in memory.
  std::shared_ptr<ParameterPager> pager();
  /// shards() without names, for torch::optim.
  std::vector<at::Tensor> parameters();
  /// Call it after the optimizer has stepped: from the next forward on, all ranks compute with the
  /// new values.
  virtual void publish() = 0;
  /// For norms of whole parameters (LAMB, LARS, clipping). UsageError if layers are divided over
  /// ranks (layouts()).
  std::shared_ptr<const NormParts> norm_parts();
  /// torch.nn.utils.clip_grad_norm_ over all ranks' shards (optim/clip.h): scales gradients in
  /// place and returns the norm before clipping. Every rank calls it. UsageError if layers are
  /// divided over ranks: shard/divided_shards.h clips those.
  double clip_grad_norm_(double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
  /// torch.nn.utils.clip_grad_value_.
  void clip_grad_value_(double clip_value);
  /// Makes the shards' gradients undefined.
  void zero_grad();
  /// Visits this rank's parts of the parameters as slices of the flattened parameters,
  /// "model.<name>".
  void state(StateVisitor& visitor);
  /// Visits the state of an object that was made from shards (an optimizer) as slices of whole
  /// parameters: tensors whose names end in ".<parameter>" get the position of this rank's part.
  void sharded_state(StateVisitor& visitor, const StateWalk& walk) const;
  const ShardGroups& groups() const { return groups_; }
  /// Further names of tied weights, which shards() lists under their first names. To use these
  /// names in patterns for an optimizer made from shards, apply with_first_names(patterns, tied()).
  const TiedNames& tied() {
    complete();
    return tied_;
  }
  /// What this rank holds of each parameter of the module, which ShardedDataParallel and
  /// FullySharded (with `automatic`) find out: layers may be divided over the ranks of another axis
  /// (tensor parallelism). state() and sharded_state() then visit parts of the whole parameters.
  /// Empty if made from a list of tensors.
  const ParameterLayouts& layouts() const { return layouts_; }
  /// The offset of the shard of this name in the parameter that this rank's module has.
  int64_t begin_of(const std::string& shard) const;
  /// Reports that LibTorch's optimizer could not step on the shards: ends the group and throws
  /// UsageError on this rank.
  [[noreturn]] void refuse_step(const std::string& why);

 protected:
  explicit ShardedParameters(ShardGroups groups);
  /// Ends the group on all ranks, whatever they are waiting for, and throws.
  [[noreturn]] void end_with(const std::string& why);
  /// The same for a parameter that was replaced between a backward and the step: the optimizer has
  /// stepped on its old values.
  [[noreturn]] void refuse_late(const std::string& parameter);
  /// Called before shards are handed out: makes sure that all of them exist and have the values
  /// that parameters have been given since (torch::load()).
  virtual void complete() {}
  /// To be called once, when all FlatParameters exist.
  void set_flats(const std::vector<FlatParameters*>& flats);
  /// The layouts of a module whose path in the network is `path`.
  void add_layouts(const std::string& path, const torch::nn::Module& module);

  ShardGroups groups_;
  std::vector<FlatParameters*> all_flats_;
  NamedTensors shards_;
  TiedNames tied_;
  std::shared_ptr<ParameterPager> pager_;
  std::shared_ptr<const NormParts> parts_;

 private:
  struct Place {
    std::vector<int64_t> shape;
    int64_t begin = 0;
  };
  std::map<std::string, Place> places_;
  ParameterLayouts layouts_;
  std::string first_divided_;  // a parameter of which this rank holds a part; "": none
};

/// The parameters, as state() visits them; after a load all ranks have the new values.
TRIREME_API StateWalk state_of(ShardedParameters& sharded);
/// The state of an optimizer that was made from sharded.parameters().
TRIREME_API StateWalk state_of(torch::optim::Optimizer& optimizer, ShardedParameters& sharded);

}  // namespace trireme
