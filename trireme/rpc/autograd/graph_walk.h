// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trireme/rpc/autograd/nodes.h"

namespace trireme::rpc::autograd {

/// What lies behind the entries of a worker's piece of the graph. Each node is looked at once,
/// however many entries lead to it. One backward's; the graph outlives it.
class GraphWalk {
 public:
  struct Behind {
    std::vector<Received*> exits;  // all that can be reached
    std::vector<int> touches;      // earlier entries whose pieces share nodes with this one's
  };

  /// The next entry: where it leads. Accumulators do not count as shared.
  Behind enter(const torch::autograd::edge_list& edges);
  /// The accumulators behind an entry, but for those behind nodes that it shares with an earlier
  /// one: together, those behind all entries of a pass.
  const torch::autograd::edge_list& leaves(int entry) const {
    return leaves_[static_cast<size_t>(entry)];
  }

 private:
  using Node = torch::autograd::Node;
  struct Seen {
    int entry = 0;  // that came here first
    int exits = 0;  // which set of exits lies behind
  };

  int add(const compat::NodePtr& node, int entry, std::unordered_set<int>& touched);
  int set_of(std::vector<int> exits);
  int both(int one, int other);

  std::unordered_map<Node*, Seen> seen_;
  std::vector<Received*> received_;
  // Sets of exits, by number; most nodes have that of the one behind them. 0: the empty one.
  std::vector<std::vector<int>> sets_{{}};
  std::map<std::vector<int>, int> numbers_{{{}, 0}};
  std::map<std::pair<int, int>, int> joined_;
  std::vector<torch::autograd::edge_list> leaves_;
  std::vector<std::unordered_set<Node*>> leaf_nodes_;
};

}  // namespace trireme::rpc::autograd
