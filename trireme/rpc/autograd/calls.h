// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/rpc/autograd/ids.h"

// What workers say to each other in a backward; docs/rpc.md has its course.
namespace trireme::rpc::autograd {

/// Gradients leave by a pair, for the worker that sent its tensors.
struct Exit {
  Pair pair;
  std::string worker;
  int64_t member = 0;
  TRIREME_FIELDS(pair, worker, member)
};

/// What lies behind an entry.
struct Found {
  std::vector<Exit> exits;
  std::vector<int> touches;  // entries of this worker, counted as they were asked for
  TRIREME_FIELDS(exits, touches)
};

/// A pass (plan/backward_plan.h).
struct PassOrder {
  bool losses = false;  // it begins at the losses
  bool waits = false;
  std::vector<Pair> entries;
  std::vector<Pair> exits;
  std::vector<std::vector<Pair>> after;  // where it waits: of each entry
  TRIREME_FIELDS(losses, waits, entries, exits, after)
};

/// How a worker's parameters get their gradients, and what becomes of the graph.
struct BackwardKind {
  bool retain_graph = false;
  bool accumulate = false;  // into grad(), through the accumulators
  TRIREME_FIELDS(retain_graph, accumulate)
};

}  // namespace trireme::rpc::autograd
