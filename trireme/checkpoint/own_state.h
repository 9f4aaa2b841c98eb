// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/export.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/tensor/module_state.h"
#include "trireme/tensor/state.h"

// Checkpoints for your own training loop.
//
//   const StateWalk state = all_of({
//       state_of(model), state_of(optimizer, model), state_of(schedule), state_of(sampler),
//       state_of("epoch", epoch)});
//   if (const auto saved = load_if_any(run_dir, state, group)) step = saved->step;
//   …
//   save(run_dir, step, state, group);
//
// state_of() exists for modules, for torch::optim optimizers (optim/torch_optimizer_state.h), for
// the classes of shard/, and for every class with a method state(StateVisitor&): ShardedOptimizer,
// Optimizer, schedules, GradScaler, DistributedSampler. What a walk visits must outlive it.
namespace trireme {

/// Visits the state of these walks in turn. No two of them may visit the same name: see named().
TRIREME_API StateWalk all_of(std::vector<StateWalk> walks);
/// Puts "<name>." before every name, for the second model or optimizer of a program.
TRIREME_API StateWalk named(std::string name, StateWalk walk);

/// A value of your loop, under this name. Ranks that save together must hold the same value.
TRIREME_API StateWalk state_of(std::string name, int64_t& value);
TRIREME_API StateWalk state_of(std::string name, double& value);
TRIREME_API StateWalk state_of(std::string name, std::string& value);
/// A tensor that every rank holds whole; a save takes rank 0's copy.
TRIREME_API StateWalk state_of(std::string name, at::Tensor& value);
template <class Number>
requires(std::is_arithmetic_v<Number>) StateWalk state_of(std::string name, Number& value) {
  return [name = std::move(name), &value](StateVisitor& v) {
    using Stored = std::conditional_t<std::is_floating_point_v<Number>, double, int64_t>;
    auto stored = static_cast<Stored>(value);
    v.value(name, stored);
    if constexpr (std::integral<Number>)
      if (static_cast<int64_t>(static_cast<Number>(stored)) != stored)
        throw UsageError("load: the value '" + name + "' is " + std::to_string(stored) +
                         ", which the variable that it is loaded into cannot hold");
    value = static_cast<Number>(stored);
  };
}

/// Saves the state visited on the ranks of `group` as <run_dir>/step-<step>/, as save_sharded_step
/// does; every rank of the group calls it. Without a group, this process saves its own state, which
/// must be whole, as under DDP. With a group it begins with a barrier, so that if only one rank
/// calls it (`if (rank == 0)`), the Mismatch, PeerLost or Timeout names that line and what the
/// other rank did.
TRIREME_API std::string save(const std::string& run_dir, int64_t step, const StateWalk& walk,
                             const Group& group = {}, ShardedSaveOptions options = {},
                             CallSite site = CallSite::here());

/// Loads the newest step of a run folder, or a step folder, as load_step() does, into any number of
/// ranks, every one of which calls it. `group`, if given, replaces options.group. If it throws and
/// you mean to train on with the state that you had, load with LoadOptions::check_first.
TRIREME_API CheckpointInfo load(const std::string& path, const StateWalk& walk,
                                const Group& group = {}, LoadOptions options = {});
/// Likewise; if rank 0 finds no step in the run folder, nor a trace of one (`latest`, or a step
/// that was being replaced), loads nothing and returns nullopt, so that the loop starts from
/// scratch.
TRIREME_API std::optional<CheckpointInfo> load_if_any(const std::string& run_dir,
                                                      const StateWalk& walk,
                                                      const Group& group = {},
                                                      LoadOptions options = {});

}  // namespace trireme
