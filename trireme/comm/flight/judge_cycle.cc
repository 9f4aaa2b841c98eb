// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "trireme/comm/flight/cycle.h"
#include "trireme/comm/flight/findings.h"

namespace trireme::flight {

std::optional<Finding> judge_cycle(const std::vector<Group>& groups) {
  struct Blocked {
    const Entry* entry = nullptr;
    const Group* group = nullptr;
    const History* history = nullptr;
  };
  std::map<int, Blocked> blocked;
  int most = -1;
  bool failed = false;
  for (const Group& group : groups) {
    failed = failed || has_failed(group);
    for (const History* h : group) {
      most = std::max(most, h->world_rank);
      for (const auto* entries : {&h->calls, &h->pairs}) {
        if (entries->empty()) continue;
        Blocked& b = blocked[h->world_rank];
        if (!b.entry || entries->back().posted > b.entry->posted) b = {&entries->back(), &group, h};
      }
    }
  }
  if (!failed || most < 0 || most > 1 << 20) return std::nullopt;
  std::vector<std::vector<int>> waits(static_cast<size_t>(most) + 1);
  for (const auto& [rank, b] : blocked) {
    if (b.entry->state == CallState::done) continue;
    const bool pair = facts_of(b.entry->op).is_message;
    for (const History* h : *b.group)
      if (h->world_rank != rank &&
          (pair ? b.entry->root == h->rank : last_of(h->calls) < b.entry->seq))
        waits[static_cast<size_t>(rank)].push_back(h->world_rank);
  }
  const std::vector<int> cycle = first_cycle(waits);
  if (cycle.empty()) return std::nullopt;
  Finding found;
  found.verdict.kind = Verdict::cycle;
  found.verdict.rank = cycle.front();
  found.verdict.group = blocked[cycle.front()].history->group;
  found.verdict.seq = blocked[cycle.front()].entry->seq;
  std::string text;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const Blocked& b = blocked[cycle[i]];
    found.when = i == 0 ? b.entry->posted : std::min(found.when, b.entry->posted);
    text +=
        fmt::format("{}rank {} waits in {} of group {} for rank {}", i == 0 ? "" : ", ", cycle[i],
                    text_of(*b.entry), b.history->group, cycle[(i + 1) % cycle.size()]);
  }
  found.verdict.sentence = "ranks wait for each other in a cycle: " + text +
                           "; every rank must make its calls in the same order";
  return found;
}

}  // namespace trireme::flight
