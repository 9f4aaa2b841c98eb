// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/cycle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace cycle_test {

using trireme::flight::cycle_through;
using trireme::flight::first_cycle;

namespace {

using Graph = std::vector<std::vector<int>>;

Graph graph_of(int n, uint64_t edges) {  // bit (from * n + to)
  Graph g(static_cast<size_t>(n));
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      if (from != to && (edges >> (from * n + to) & 1)) g[size_t(from)].push_back(to);
  return g;
}

bool has_edge(const Graph& g, int from, int to) {
  const auto& out = g[size_t(from)];
  return std::find(out.begin(), out.end(), to) != out.end();
}

// The length of a shortest closed walk through `from`: powers of the adjacency matrix.
int shortest(const Graph& g, int from) {
  const auto n = static_cast<int>(g.size());
  std::vector<bool> now(g.size());
  now[size_t(from)] = true;
  for (int length = 1; length <= n; ++length) {
    std::vector<bool> next(g.size());
    for (int r = 0; r < n; ++r)
      if (now[size_t(r)])
        for (int q : g[size_t(r)]) next[size_t(q)] = true;
    if (next[size_t(from)]) return length;
    now = next;
  }
  return 0;
}

}  // namespace

TEST(comm_flight_cycle, every_graph_of_up_to_four_ranks_gives_a_shortest_cycle_or_none) {
  int found = 0, without = 0;
  for (int n = 1; n <= 4; ++n)
    for (uint64_t edges = 0; edges < uint64_t{1} << (n * n); ++edges) {
      bool loops = false;  // those say nothing new
      for (int r = 0; r < n; ++r) loops = loops || (edges >> (r * n + r) & 1);
      if (loops) continue;
      const Graph g = graph_of(n, edges);
      bool any = false;
      for (int from = 0; from < n; ++from) {
        const auto cycle = cycle_through(g, from);
        ASSERT_EQ(static_cast<int>(cycle.size()), shortest(g, from));
        if (cycle.empty()) continue;
        any = true;
        ASSERT_EQ(cycle.front(), from);
        for (size_t i = 0; i < cycle.size(); ++i)
          ASSERT_TRUE(has_edge(g, cycle[i], cycle[(i + 1) % cycle.size()]));
        auto sorted = cycle;
        std::sort(sorted.begin(), sorted.end());
        ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
      }
      ASSERT_EQ(first_cycle(g).empty(), !any);
      ++(any ? found : without);
    }
  EXPECT_GT(found, 1000);
  EXPECT_EQ(without, 1 + 3 + 25 + 543);  // the directed acyclic graphs on 1 to 4 named nodes
}

TEST(comm_flight_cycle, a_ring_of_64_ranks_is_found_whole) {
  Graph g(64);
  for (int r = 0; r < 64; ++r) g[size_t(r)].push_back((r + 1) % 64);
  EXPECT_EQ(cycle_through(g, 7).size(), 64u);
  g[63].clear();
  EXPECT_TRUE(first_cycle(g).empty());
}

}  // namespace cycle_test
