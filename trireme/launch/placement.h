// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"

namespace trireme::launch {

/// Where one worker stands among all workers of a job.
struct Placement {
  int rank = 0;
  int local_rank = 0;
  int node_rank = 0;
  int world = 1;        // workers of all nodes
  int local_world = 1;  // workers of this node
  int nodes = 1;
};

/// Ranks are consecutive on a node, and nodes come in their order, however many workers each has.
/// `workers_of_nodes`: at least 1 each. Pure.
TRIREME_API Placement place(const std::vector<int>& workers_of_nodes, int node_rank,
                            int local_rank);

}  // namespace trireme::launch
