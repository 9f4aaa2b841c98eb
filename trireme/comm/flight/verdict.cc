// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "trireme/comm/flight/findings.h"

namespace trireme::flight {
namespace {

/// Finds the rank that came last to a call, where it mattered most.
void judge_slowest(const std::vector<Group>& groups, Verdict& v) {
  double worst = 0;
  std::string who;
  uint64_t calls = 0;
  for (const Group& group : groups) {
    for (const Entry& e : group[0]->calls) {
      ++calls;
      const History* last = nullptr;
      double first_came = 0, last_came = 0;
      size_t came = 0;
      for (const History* h : group) {
        const Entry* mine = find(h->calls, e.seq);
        if (!mine) continue;
        if (came++ == 0 || mine->posted < first_came) first_came = mine->posted;
        if (!last || mine->posted > last_came) last = h, last_came = mine->posted;
      }
      if (came != group.size() || came < 2 || last_came - first_came <= worst) continue;
      worst = last_came - first_came;
      v.rank = last->world_rank;
      v.group = last->group;
      v.seq = e.seq;
      who = fmt::format("; {} was slowest: it came to call {} of group {}, {}, {} after the first",
                        name_of(*last), e.seq, last->group, text_of(e), seconds(worst));
    }
  }
  v.sentence = fmt::format("all ranks agree: no divergence in the last {} calls{}", calls, who);
}

}  // namespace

Verdict judge(const std::vector<History>& histories) {
  std::map<std::pair<std::string, uint64_t>, Group> lives;
  for (const History& h : histories) lives[{h.group, h.generation}].push_back(&h);
  std::vector<Group> groups;
  Verdict verdict;
  std::vector<std::string> absent;
  for (auto& [key, group] : lives) {
    std::sort(group.begin(), group.end(),
              [](const History* a, const History* b) { return a->rank < b->rank; });
    std::set<int> there;
    for (const History* h : group) there.insert(h->rank);
    for (int r = 0; r < group[0]->size && absent.size() < 1000; ++r)
      if (!there.count(r)) absent.push_back(fmt::format("rank {} of group {}", r, key.first));
    groups.push_back(group);
  }
  std::optional<Finding> first;
  auto offer = [&](const std::optional<Finding>& found) {
    if (!found) return;
    // A difference comes before a missing call, which may only follow from it.
    auto order = [](const Finding& f) {
      const int rank_of_kind = f.verdict.kind <= Verdict::different_pair ? 0
                               : f.verdict.kind == Verdict::cycle        ? 1
                                                                         : 2;
      return std::tuple(rank_of_kind, f.when);
    };
    if (!first || order(*found) < order(*first)) first = found;
  };
  for (const Group& group : groups) {
    offer(judge_calls(group));
    offer(judge_pairs(group));
  }
  offer(judge_cycle(groups));
  if (first)
    verdict = first->verdict;
  else if (!groups.empty())
    judge_slowest(groups, verdict);
  verdict.absent = std::move(absent);
  return verdict;
}

}  // namespace trireme::flight
