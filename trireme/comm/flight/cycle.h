// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme::flight {

/// waits[r] lists the ranks that rank r needs, all of them, before it can continue (a rank that any
/// one of several could free has no entry); a cycle then never ends by itself. Returns the ranks of
/// a shortest cycle through `from`, each waiting for the next and the last for the first, starting
/// with `from`; empty if there is none.
inline std::vector<int> cycle_through(const std::vector<std::vector<int>>& waits, int from) {
  std::vector<int> came_from(waits.size(), -1), queue{from};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int r = queue[i];
    for (int next : waits[static_cast<size_t>(r)]) {
      if (next == from) {
        std::vector<int> cycle;
        for (int at = r; at != from; at = came_from[static_cast<size_t>(at)]) cycle.push_back(at);
        cycle.push_back(from);
        std::reverse(cycle.begin(), cycle.end());
        return cycle;
      }
      if (came_from[static_cast<size_t>(next)] >= 0) continue;
      came_from[static_cast<size_t>(next)] = r;
      queue.push_back(next);
    }
  }
  return {};
}

/// Returns a cycle through the lowest rank that is in one.
inline std::vector<int> first_cycle(const std::vector<std::vector<int>>& waits) {
  for (size_t r = 0; r < waits.size(); ++r)
    if (auto cycle = cycle_through(waits, static_cast<int>(r)); !cycle.empty()) return cycle;
  return {};
}

}  // namespace trireme::flight
