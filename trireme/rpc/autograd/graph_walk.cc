// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/graph_walk.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

namespace trireme::rpc::autograd {

GraphWalk::Behind GraphWalk::enter(const torch::autograd::edge_list& edges) {
  const int entry = static_cast<int>(leaves_.size());
  leaves_.emplace_back();
  leaf_nodes_.emplace_back();
  std::unordered_set<int> touched;
  int exits = 0;
  for (const auto& edge : edges)
    if (edge.is_valid()) exits = both(exits, add(edge.function, entry, touched));
  Behind behind;
  for (const int exit : sets_[static_cast<size_t>(exits)])
    behind.exits.push_back(received_[static_cast<size_t>(exit)]);
  behind.touches.assign(touched.begin(), touched.end());
  std::sort(behind.touches.begin(), behind.touches.end());
  return behind;
}

// Depth first, without recursion: a graph may be as deep as a network has operators.
int GraphWalk::add(const compat::NodePtr& from, int entry, std::unordered_set<int>& touched) {
  struct Open {
    Node* node;
    size_t next;
    int exits;
  };
  std::vector<Open> path;
  int result = 0;
  // The exits behind a node that need not be entered; −1: it was put on the path.
  const auto visit = [&](const compat::NodePtr& node) {
    if (dynamic_cast<torch::autograd::AccumulateGrad*>(node.get())) {
      if (leaf_nodes_.back().insert(node.get()).second) leaves_.back().emplace_back(node, 0);
      return 0;
    }
    const auto [place, first] = seen_.emplace(node.get(), Seen{entry, 0});
    if (!first) {
      if (place->second.entry != entry) touched.insert(place->second.entry);
      return place->second.exits;
    }
    if (auto* received = dynamic_cast<Received*>(node.get())) {
      received_.push_back(received);
      return place->second.exits = set_of({static_cast<int>(received_.size()) - 1});
    }
    path.push_back({node.get(), 0, 0});
    return -1;
  };
  if (const int exits = visit(from); exits >= 0) return exits;
  while (!path.empty()) {
    auto& open = path.back();
    if (open.next < open.node->num_outputs()) {
      const auto& child = open.node->next_edge(open.next++).function;
      if (!child) continue;
      const size_t depth = path.size() - 1;
      if (const int exits = visit(child); exits >= 0)
        path[depth].exits = both(path[depth].exits, exits);
      continue;
    }
    seen_[open.node].exits = open.exits;
    result = open.exits;
    path.pop_back();
    if (!path.empty()) path.back().exits = both(path.back().exits, result);
  }
  return result;
}

int GraphWalk::set_of(std::vector<int> exits) {
  const auto [place, first] = numbers_.emplace(std::move(exits), static_cast<int>(sets_.size()));
  if (first) sets_.push_back(place->first);
  return place->second;
}

int GraphWalk::both(int one, int other) {
  if (one == other || other == 0) return one;
  if (one == 0) return other;
  const auto key = std::minmax(one, other);
  const auto [place, first] = joined_.emplace(std::pair(key.first, key.second), 0);
  if (first) {
    const auto& a = sets_[static_cast<size_t>(one)];
    const auto& b = sets_[static_cast<size_t>(other)];
    std::vector<int> all;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
    place->second = set_of(std::move(all));
  }
  return place->second;
}

}  // namespace trireme::rpc::autograd
