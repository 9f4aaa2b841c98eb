// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/state.h"

// What communication hooks stand on that take several calls for a bucket, or remember something.
namespace trireme {

/// One bucket under way. Dropping it drops what it would have done.
class TRIREME_API BucketReduction {
 public:
  virtual ~BucketReduction();
  /// Waits for what was issued last, goes on with it and issues what comes next. False: the result
  /// stands in the bucket. All ranks answer alike.
  virtual bool advance() = 0;
};

/// A communication hook with a memory: error feedback, the last factors of PowerSGD. It belongs to
/// one rank and one reducer, which run on one thread; its memory is a part of the run's state.
///
/// A bucket's first calls are issued when it is full, the later ones when the round closes: for all
/// buckets in order, one call of each at a time, so that one is under way while the next is
/// encoded, and every rank issues the same calls in the same order. What throws on the way finishes
/// the group, as a hook that throws: the other ranks get PeerLost with its text.
class TRIREME_API StatefulHook : public std::enable_shared_from_this<StatefulHook> {
 public:
  virtual ~StatefulHook();
  StatefulHook() = default;
  StatefulHook(const StatefulHook&) = delete;

  /// For DdpOptions::hook, or around it. Keeps this alive; this is held by a shared_ptr.
  CommHook hook();
  /// Between rounds. What ranks hold each for themselves is shown as one rank's part of a tensor of
  /// them all.
  virtual void state(StateVisitor& visitor) = 0;

 protected:
  /// Issues the first calls. Reads bucket.buffer, which is the hook's until the last advance().
  virtual std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) = 0;

 private:
  struct UnderWay {
    size_t bucket;
    Group group;
    std::unique_ptr<BucketReduction> reduction;
  };
  void finish();
  std::vector<UnderWay> under_way_;  // of this round; empty between rounds
};

/// Shows this rank's `local` as part `rank` of a flat tensor that has one for each of `ranks`.
TRIREME_API void show_part(StateVisitor& visitor, const std::string& name, int rank, int ranks,
                           const at::Tensor& local);

}  // namespace trireme
