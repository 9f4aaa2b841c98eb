// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/comm/plan/algorithm.h"

// all_reduce by a named algorithm, over the sends and receives of any backend. Group::all_reduce is
// the backend's own, and the one to take unless measuring says otherwise.
namespace trireme {

/// What a run moved, on this rank.
struct PlanTraffic {
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t messages = 0;  // sent
  int rounds = 0;
};

struct AlgorithmOptions {
  std::vector<int> hosts;  // two_level: hosts[r] says where rank r runs; empty: all on one host
  int tag = 0x7472;        // of its messages; nobody else may use it meanwhile
};

/// Adds `tensor` over all ranks, in place; returns when the result is there. Tensors and ops as
/// Group::all_reduce (dense, any strides; the reduction is ATen's, on the tensor's device, so any
/// dtype that the backend can send will do).
/// Where keeps_order(algorithm, hosts) the result has the bits of the local backend's all_reduce:
/// float16 and bfloat16 then travel and are added as float32, at twice the bytes, and are rounded
/// once. The others round at each hop.
/// Every rank calls it with the same arguments. Memory: the tensor once more, at most (double_tree:
/// twice). UsageError before anything is sent; PeerLost and Timeout (the group's) as sends and
/// receives raise them, after which tensor and group are finished.
TRIREME_API PlanTraffic all_reduce_with(Group& group, at::Tensor tensor, Reduction op,
                                        Algorithm algorithm, const AlgorithmOptions& options = {},
                                        CallSite site = CallSite::here());

/// Runs this rank's plan on a flat, contiguous tensor: each round posts its receives and sends,
/// waits for all, then reduces. For avg the plan must be an all_reduce: it adds, and scales once at
/// the end.
TRIREME_API PlanTraffic run_plan(Group& group, const plan::Plan& plan, at::Tensor flat, ReduceOp op,
                                 int tag, CallSite site = CallSite::here());

}  // namespace trireme
