// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/state.h"

// The base of communication hooks that need several calls per bucket or keep state.
namespace trireme {

/// The reduction of one bucket in progress. Destroying it cancels the remaining work.
class TRIREME_API BucketReduction {
 public:
  virtual ~BucketReduction();
  /// Waits for the last call issued, processes its result and issues the next call. False: the
  /// result is in the bucket. Returns the same on all ranks.
  virtual bool advance() = 0;
};

/// A communication hook with state, such as error feedback or the last factors of PowerSGD. It
/// belongs to one rank and one reducer and runs on one thread; its state is part of the run's
/// state.
///
/// A bucket's first calls are issued when it is full, the later ones when the round closes: for all
/// buckets in order, one call for each at a time, so that one is in progress while the next is
/// encoded, and every rank issues the same calls in the same order. An exception from any of them
/// ends the group, as for any hook: the other ranks get PeerLost with its message.
class TRIREME_API StatefulHook : public std::enable_shared_from_this<StatefulHook> {
 public:
  virtual ~StatefulHook();
  StatefulHook() = default;
  StatefulHook(const StatefulHook&) = delete;

  /// The hook to pass as DdpOptions::hook, or to wrap in another. It keeps this object alive, which
  /// must be owned by a shared_ptr.
  CommHook hook();
  /// Called between rounds. State that differs between ranks is visited with
  /// StateVisitor::rank_tensor().
  virtual void state(StateVisitor& visitor) = 0;

 protected:
  /// Issues the first calls. Reads bucket.buffer, which belongs to the hook until the last
  /// advance().
  virtual std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) = 0;

 private:
  struct UnderWay {
    size_t bucket;
    Group group;
    std::unique_ptr<BucketReduction> reduction;
  };
  void finish();
  std::vector<UnderWay> under_way_;  // in this round; empty between rounds
};

}  // namespace trireme
