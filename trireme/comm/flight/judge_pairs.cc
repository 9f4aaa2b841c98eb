// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "trireme/comm/flight/findings.h"

namespace trireme::flight {
namespace {

/// Compares the messages from one rank to another with one tag, in order, at both ends.
std::optional<Finding> judge_lane(const History& from, const History& to, int tag,
                                  const std::vector<const Entry*>& sends,
                                  const std::vector<const Entry*>& recvs, bool failed) {
  Verdict v;
  v.group = from.group;
  const size_t both = std::min(sends.size(), recvs.size());
  for (size_t i = 0; i < both; ++i) {
    const Entry &s = *sends[i], &r = *recvs[i];
    if (s.dtype == r.dtype && s.count == r.count) continue;
    v.kind = Verdict::different_pair;
    v.rank = to.world_rank;
    v.seq = i + 1;
    v.sentence =
        fmt::format("{} called {} for message {} with tag {} of group {} where {} called {}",
                    name_of(to), text_of(r), i + 1, tag, v.group, name_of(from), text_of(s));
    return Finding{v, std::max(s.posted, r.posted)};
  }
  if (sends.size() == recvs.size()) return std::nullopt;
  const bool more_sends = sends.size() > both;
  const Entry& e = more_sends ? *sends[both] : *recvs[both];
  const History &waits = more_sends ? from : to, &lacks = more_sends ? to : from;
  if (e.state == CallState::done)
    return std::nullopt;  // small messages complete without the other end
  if (lacks.written < e.posted || (!failed && lacks.written - e.posted < kPatience))
    return std::nullopt;
  v.kind = Verdict::missing_message;
  v.rank = lacks.world_rank;
  v.seq = both + 1;
  v.sentence =
      fmt::format("{} never {} message {} with tag {} of group {}, for which {} called {}; {}",
                  name_of(lacks), more_sends ? "received" : "sent", both + 1, tag, v.group,
                  name_of(waits), text_of(e), last_words(lacks));
  return Finding{v, e.posted};
}

}  // namespace

std::optional<Finding> judge_pairs(const Group& group) {
  using Lane = std::tuple<int, int, int>;  // from, to, tag
  std::map<Lane, std::vector<const Entry*>> sends, recvs;
  std::set<std::pair<int, int>> any;  // (rank, tag) with a recv of any source that is open
  std::map<int, const History*> ranks;
  for (const History* h : group) {
    if (last_of(h->pairs) >= kRecords)
      continue;  // its first messages are no longer kept: no numbers to compare
    ranks[h->rank] = h;
    for (const Entry& e : h->pairs) {
      if (e.op == Collective::send)
        sends[{h->rank, e.root, e.tag}].push_back(&e);
      else if (e.root < 0)
        any.insert({h->rank, e.tag});
      else
        recvs[{e.root, h->rank, e.tag}].push_back(&e);
    }
  }
  std::set<Lane> lanes;
  for (const auto* side : {&sends, &recvs})
    for (const auto& [lane, entries] : *side) lanes.insert(lane);
  std::optional<Finding> first;
  for (const Lane& lane : lanes) {
    const auto [from, to, tag] = lane;
    if (!ranks.count(from) || !ranks.count(to) || any.count({to, tag})) continue;
    auto found =
        judge_lane(*ranks[from], *ranks[to], tag, sends[lane], recvs[lane], has_failed(group));
    if (!found) continue;
    const auto order = [](const Finding& f) { return std::tuple(f.verdict.kind, f.when); };
    if (!first || order(*found) < order(*first)) first = found;
  }
  return first;
}

}  // namespace trireme::flight
