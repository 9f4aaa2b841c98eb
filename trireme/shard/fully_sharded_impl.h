// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/grad/hooks/hook_adapter.h"
#include "trireme/grad/rounds/replaced_parameters.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/shard/param_unit.h"
#include "trireme/shard/unit_function.h"
#include "trireme/tensor/tensor_overlaps.h"
#include "trireme/tensor/tied_tensors.h"

// What fully_sharded.cc has behind its face: units are made in fully_sharded_units.cc, and become
// whole and are dropped in fully_sharded_run.cc.
namespace trireme {

struct FullySharded::Unit::State {
  std::unique_ptr<ParamUnit> params;
  std::weak_ptr<FullySharded::Impl> owner;
  size_t index = 0;
  int stage = 0;
  bool held = false;  // between unshard() and reshard()
  bool halved =
      false;  // a backward came here that may have a second half, which must find it whole
  bool reshard_after_forward = true;
  std::vector<size_t> buffers;  // of the scatter: those that require gradients
  int open_ends = 0;            // graphs whose backward has still to come to the inputs
  bool endless = false;         // one of this round's has no input that would tell of its end
};

struct FullySharded::Impl : std::enable_shared_from_this<FullySharded::Impl> {
  using UnitState = Unit::State;

  Impl(ShardGroups g, FullyShardedOptions o)
      : groups(std::move(g)), options(std::move(o)), gather_buffers(groups.shards) {
    if (options.file) file = std::make_unique<ShardFile>(*options.file);
  }

  ShardGroups groups;
  FullyShardedOptions options;
  GatherBufferPool gather_buffers;
  std::unique_ptr<ShardFile> file;  // outlives units
  std::vector<std::unique_ptr<Unit>> units;
  Unit* root = nullptr;
  struct Taken {
    std::string unit;                // "": the root
    std::vector<std::string> names;  // full ones; several where the unit ties it
    bool has(const std::string& name) const {
      return std::find(names.begin(), names.end(), name) != names.end();
    }
  };
  std::map<at::TensorImpl*, Taken> taken;  // parameters
  TiedNames tied;                          // of all units
  NamedTensors buffers;                    // of all units, by their full names
  TensorOverlaps memory;                   // of the parameters taken, as it was
  std::unique_ptr<GradientScatter> scatter;
  std::unique_ptr<HookAdapter> hooks;
  std::unique_ptr<ReplacedParameters> replaced;
  std::function<void()> unused;
  Stats stats;

  // Units in the order of their forwards: of the last step, and of this one so far.
  std::vector<size_t> order, order_now;
  bool backward_began = false;
  bool told = false;  // the caller says what is gathered, and when

  int backwards = 1, backwards_done = 0;
  struct Seen {
    uint32_t shard = 0;
    at::TensorImpl* gradient = nullptr;
    uint32_t gradient_version = 0;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> at_last_backward;

  UnitState& state(size_t i) { return *units[i]->state_; }

  Unit& add(const std::string& name, torch::nn::Module& module, bool is_root);
  void complete(FullySharded& self);
  std::vector<Seen> look(const NamedTensors& shards) const;
  void check_stepped();

  std::vector<at::Tensor> run(const std::shared_ptr<UnitState>& unit, const Fn& fn,
                              const std::vector<at::Tensor>& inputs);
  std::shared_ptr<UnitEnds> ends_of(const std::shared_ptr<UnitState>& unit);
  void forward_begins(UnitState& unit, bool recorded);
  void make_whole(UnitState& unit);
  template <class Iterator>
  void prefetch(Iterator next, Iterator end);
  void publish();
  void follow();
  void backward_at_outputs(UnitState& unit);
  void backward_at_inputs(UnitState& unit, bool second_run);
  void drop(UnitState& unit);
  void hold(int stage, bool held);
  void end_round();
  const NamedTensors* shards = nullptr;
};

}  // namespace trireme
