// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "trireme/optim/torch_optimizer_state.h"
#include "trireme/shard/sharded_parameters.h"

namespace torch::optim {
class LBFGS;
}

namespace trireme {

/// Runs any torch::optim optimizer whose update of an element depends only on that element's
/// gradient and state (SGD, Adam, AdamW, RMSprop, Adagrad) on this rank's shards, with 1/n of the
/// state.
///
///   ShardedOptimizer<torch::optim::AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-3));
///
/// step() also makes the updated shards available to the other ranks
/// (ShardedParameters::publish()), so every rank must call it. Shards that are kept in a file are
/// all in memory during a step (offload_optimizer reads one sub-group at a time). `sharded` must
/// outlive it. (For LAMB and LARS, use make_lamb and make_lars with ShardedParameters::norm_parts.)
///
/// Its saved state is that of an unsharded optimizer, so it can be loaded on a different number of
/// ranks, at a different ZeRO stage, and into an unsharded optimizer. torch::save() writes only
/// this rank's part; a step after torch::load() of state that does not fit is a UsageError.
template <class TorchOptimizer>
class ShardedOptimizer {
  static_assert(!std::is_same_v<TorchOptimizer, torch::optim::LBFGS>,
                "LBFGS uses all elements together, so it cannot step on shards");

 public:
  template <class... Options>
  explicit ShardedOptimizer(ShardedParameters& sharded, Options&&... options)
      : sharded_(sharded), inner_(sharded.parameters(), std::forward<Options>(options)...) {}

  void step() {
    while_held(sharded_.pager().get(), 0, sharded_.shards().size(), true, [&] { step_shards(); });
    sharded_.publish();
  }
  void zero_grad() { sharded_.zero_grad(); }
  /// Visits the state that state_of() (optim/torch_optimizer_state.h) visits, as slices of the
  /// state of whole parameters.
  void state(StateVisitor& visitor) {
    const NamedTensors& shards = sharded_.shards();
    sharded_.sharded_state(visitor,
                           [&](StateVisitor& v) { visit_torch_optimizer(inner_, shards, v); });
  }
  /// The wrapped optimizer, for its options and learning rate.
  TorchOptimizer& torch_optimizer() { return inner_; }

 private:
  void step_shards() {
    try {
      inner_.step();
    } catch (const c10::Error& e) {
      sharded_.refuse_step(e.what_without_backtrace());
    }
  }

  ShardedParameters& sharded_;
  TorchOptimizer inner_;
};

}  // namespace trireme
