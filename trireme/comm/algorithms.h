// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/plan/algorithm.h"

// all_reduce by a named algorithm, built on the sends and receives of any backend. Prefer
// Group::all_reduce, which uses the backend's own, unless measurements say otherwise.
namespace trireme {

/// What a run sent and received on this rank.
struct PlanTraffic {
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t messages = 0;  // sent
  int rounds = 0;
};

struct AlgorithmOptions {
  std::vector<int> hosts;  // for two_level: hosts[r] is rank r's host; empty: one host
  int tag = 0x7472;        // of its messages; must not be used elsewhere meanwhile
};

/// Reduces `tensor` over all ranks in place and returns when the result is complete. Tensors and
/// ops are as for Group::all_reduce (dense, any strides). ATen performs the reduction on the
/// tensor's device, so any dtype that the backend can send is allowed. If keeps_order(algorithm,
/// hosts), the result has the bits of the local backend's all_reduce: float16 and bfloat16 then
/// travel and are added as float32, at twice the bytes, and are rounded once. The other algorithms
/// round at each hop. Every rank must call it with the same arguments. Memory: at most one more
/// copy of the tensor (two for double_tree). Throws UsageError before anything is sent, and
/// PeerLost or Timeout (the group's) from the messages, after which neither tensor nor group can be
/// used.
TRIREME_API PlanTraffic all_reduce_with(Group& group, at::Tensor tensor, Reduction op,
                                        Algorithm algorithm, const AlgorithmOptions& options = {},
                                        CallSite site = CallSite::here());

/// Runs this rank's plan on a flat, contiguous tensor: each round posts its receives and sends,
/// waits for all of them, then reduces. With avg the plan must be an all_reduce: it adds, and
/// scales once at the end.
TRIREME_API PlanTraffic run_plan(Group& group, const plan::Plan& plan, at::Tensor flat, ReduceOp op,
                                 int tag, CallSite site = CallSite::here());

}  // namespace trireme
