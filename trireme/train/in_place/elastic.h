// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/comm/start/run.h"
#include "trireme/tensor/state.h"
#include "trireme/train/in_place/group_is_over.h"

namespace trireme {

/// What a loop of your own keeps while ranks come and go: the same on every rank (the model, the
/// optimizer, the step). It lives outside of the loop's body, and so does what it visits. One
/// thread.
class TRIREME_API ElasticState {
 public:
  /// `walk` visits what is kept, as for a checkpoint (all_of(), state_of()).
  explicit ElasticState(StateWalk walk);
  ~ElasticState();
  ElasticState(const ElasticState&) = delete;

  /// A step is whole: a copy of the state is kept in memory, to which all go back when a rank is
  /// lost. Every rank calls it, after the same steps. It costs that copy and an all_reduce of eight
  /// bytes. Throws GroupIsOver where another rank waits to be taken in: let it pass through.
  /// UsageError: the walk visits what other ranks do not have (shards).
  void commit();

 private:
  friend bool elastic(ElasticState&, const std::function<void(Group)>&, const InitOptions&);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls body(world) on one world after the other, until it returns on one: where a rank is lost,
/// the others keep their processes, go back to the last commit() and begin the body again without
/// it; where the launcher has started another in its place, all begin it again with it, and it gets
/// the state of the others. The body makes what belongs to a world (DistributedDataParallel, a
/// sampler), and goes on from where the state is.
///
/// It takes the place of init_process_group(), with its options, and needs `trireme run
/// --max-restarts N` with N > 0; started otherwise it calls the body once. Whatever
/// else the body throws ends this rank, and passes through. False: the others have ended the loop
/// while this rank was waiting to be taken in, and its state is not theirs.
TRIREME_API bool elastic(ElasticState& state, const std::function<void(Group)>& body,
                         const InitOptions& options = {});

}  // namespace trireme
