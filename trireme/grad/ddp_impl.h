// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trireme/grad/ddp.h"
#include "trireme/grad/ddp_tensors.h"
#include "trireme/grad/hooks/hook_adapter.h"
#include "trireme/grad/leaf_backwards.h"
#include "trireme/grad/reducer.h"
#include "trireme/grad/rounds/non_finite_detector.h"
#include "trireme/grad/rounds/replaced_parameters.h"
#include "trireme/grad/rounds/sparse_gradients.h"
#include "trireme/grad/rounds/static_graph.h"
#include "trireme/grad/rounds/unused_parameters.h"

namespace trireme {

// The parts of a DistributedDataParallel, put together once from its options; after that a round is
// reducer → decorators → settle().
struct DistributedDataParallel::Impl {
  /// `again`: the module's parameters, listed anew; empty: they are what they were.
  Impl(DdpTensors tensors, Group group, DdpOptions options,
       std::function<NamedTensors()> again = {});

  /// After a round: the mean, buffers, then the errors that all ranks detect together.
  void settle();
  /// Join: a round without a batch. False: no rank had one.
  bool shadow_round();

  /// What ranks said of themselves in the last round.
  std::vector<bool> active() const;
  void scale_gradients();
  void share_buffers(const std::vector<bool>& has_batch);
  void refuse_together();
  bool look();
  std::vector<ParameterUse> used_by_fewer_than(int ranks) const;

  Group group;
  DdpOptions options;
  DdpTensors tensors;
  NamedTensors dense, sparse_list;
  NonFiniteDetector finite;
  Reducer reducer;
  RoundRecord::Fact joined, weights, forwards;
  ReplacedParameters replaced;
  std::function<NamedTensors()> list_again;
  size_t unused_before = 0;  // parameters that some rank did not use, in the last round
  bool unused_changed = false;
  std::unique_ptr<StaticGraph> static_graph;
  std::unique_ptr<SparseGradients> sparse;
  std::unique_ptr<LeafBackwards> leaves;
  std::unique_ptr<HookAdapter> hooks;
  std::vector<compat::TensorHook> thawed;  // gradients of parameters that were frozen
  UnusedPolicy unused;

  bool has_batch = true;
  bool throw_on_early_termination = false;
  double weight = 0, total_weight = 0, forward_count = 0;
  int trained_last = 0;  // the lowest rank with a batch in the last round that had one
};

}  // namespace trireme
