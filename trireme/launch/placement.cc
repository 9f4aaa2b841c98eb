// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/placement.h"

#include <numeric>

#include "trireme/base/check.h"

namespace trireme::launch {

Placement place(const std::vector<int>& workers_of_nodes, int node_rank, int local_rank) {
  const int nodes = static_cast<int>(workers_of_nodes.size());
  check<UsageError>(node_rank >= 0 && node_rank < nodes, "there is no node {} of {}", node_rank,
                    nodes);
  const auto here = workers_of_nodes.begin() + node_rank;
  check<UsageError>(local_rank >= 0 && local_rank < *here, "node {} has no local rank {}, only {}",
                    node_rank, local_rank, *here);
  Placement placement;
  placement.rank = std::accumulate(workers_of_nodes.begin(), here, 0) + local_rank;
  placement.local_rank = local_rank;
  placement.node_rank = node_rank;
  placement.world = std::accumulate(here, workers_of_nodes.end(), placement.rank - local_rank);
  placement.local_world = *here;
  placement.nodes = nodes;
  return placement;
}

}  // namespace trireme::launch
