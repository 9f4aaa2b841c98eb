// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/flight/cycle.h"

namespace trireme::flight {
namespace {

// Ranks that had not come yet when healthy ones were asked to dump are no divergence.
constexpr double kPatience = 1.0;

using Group = std::vector<const History*>;  // of one life, by rank

struct Finding {
  Verdict verdict;
  double when = 0;
};

auto words_of(const Entry& e) {  // what must agree, as the digest has it
  return std::tuple(e.op, e.dtype, e.red, e.root, e.op == OpKind::all_to_all ? 0 : e.count);
}

const Entry* find(const std::vector<Entry>& entries, uint64_t seq) {
  const auto it = std::lower_bound(entries.begin(), entries.end(), seq,
                                   [](const Entry& e, uint64_t n) { return e.seq < n; });
  return it != entries.end() && it->seq == seq ? &*it : nullptr;
}

uint64_t last_of(const std::vector<Entry>& entries) {
  return entries.empty() ? 0 : entries.back().seq;
}

std::string name_of(const History& h) {
  return h.rank == h.world_rank
             ? fmt::format("rank {}", h.rank)
             : fmt::format("rank {} (rank {} of the world)", h.rank, h.world_rank);
}

std::string names_of(const Group& ranks) {
  if (ranks.size() == 1) return name_of(*ranks[0]);
  if (ranks.size() > 4)
    return fmt::format("{} and {} others", name_of(*ranks[0]), ranks.size() - 1);
  std::string text = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}",
                        i == 0                  ? ""
                        : i + 1 == ranks.size() ? " and "
                                                : ", ",
                        ranks[i]->rank);
  return text;
}

std::string seconds(double s) { return fmt::format("{:.3g} s", std::max(0.0, s)); }

bool has_failed(const Group& group) {
  return std::any_of(group.begin(), group.end(),
                     [](const History* h) { return !h->why.empty() || h->signal > 0; });
}

/// Its last call of any kind.
std::string last_words(const History& h) {
  const Entry* last = nullptr;
  for (const auto* entries : {&h.calls, &h.pairs})
    if (!entries->empty() && (!last || entries->back().posted > last->posted))
      last = &entries->back();
  if (!last) return "it had made no call";
  const bool pair = last->op == OpKind::send || last->op == OpKind::recv;
  return fmt::format("its last was {}{}, {} before the dump",
                     pair ? "" : fmt::format("call {}, ", last->seq), text_of(*last),
                     seconds(h.written - last->posted));
}

/// The first number under which the ranks' calls differ, or that a rank did not come to.
std::optional<Finding> judge_calls(const Group& group) {
  uint64_t first = 1, last = 0;
  for (const History* h : group) {
    if (!h->calls.empty() && last_of(h->calls) >= kRecords)
      first = std::max(first, h->calls.front().seq);
    last = std::max(last, last_of(h->calls));
  }
  for (uint64_t seq = first; seq <= last; ++seq) {
    std::map<decltype(words_of(Entry{})), Group> made;
    Group missing;
    double when = std::numeric_limits<double>::max();
    for (const History* h : group) {
      const Entry* e = find(h->calls, seq);
      if (!e) continue;
      made[words_of(*e)].push_back(h);
      when = std::min(when, e->posted);
    }
    // A rank that wrote before the others came cannot tell.
    for (const History* h : group)
      if (last_of(h->calls) < seq && h->written > when) missing.push_back(h);
    Verdict v;
    v.group = group[0]->group;
    v.seq = seq;
    if (made.size() > 1) {
      const Group* most = nullptr;
      for (const auto& [words, ranks] : made)
        if (!most || ranks.size() > most->size() ||
            (ranks.size() == most->size() && ranks[0]->rank < (*most)[0]->rank))
          most = &ranks;
      const History* odd = nullptr;
      for (const auto& [words, ranks] : made)
        if (&ranks != most && (!odd || ranks[0]->rank < odd->rank)) odd = ranks[0];
      v.kind = Verdict::different_call;
      v.rank = odd->world_rank;
      v.sentence = fmt::format("{} called {} as its call {} of group {} where {} called {}",
                               name_of(*odd), text_of(*find(odd->calls, seq)), seq, v.group,
                               names_of(*most), text_of(*find((*most)[0]->calls, seq)));
      return Finding{v, when};
    }
    if (missing.empty() || made.empty()) continue;
    if (!has_failed(group) && missing[0]->written - when < kPatience) return std::nullopt;
    const Group& waits = made.begin()->second;
    v.kind = Verdict::missing_call;
    v.rank = missing[0]->world_rank;
    v.sentence = fmt::format(
        "{} never made call {} of group {}, in which {} called {}; {}", names_of(missing), seq,
        v.group, names_of(waits), text_of(*find(waits[0]->calls, seq)),
        missing.size() == 1
            ? last_words(*missing[0])
            : fmt::format("of rank {}, {}", missing[0]->rank, last_words(*missing[0])));
    if (missing[0]->signal) v.sentence += fmt::format("; signal {} came", missing[0]->signal);
    return Finding{v, when};
  }
  return std::nullopt;
}

/// The messages from one rank to another with one tag, in order, at both ends.
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
  if (e.state == CallState::done) return std::nullopt;  // small messages go without the other end
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

std::optional<Finding> judge_pairs(const Group& group) {
  using Lane = std::tuple<int, int, int>;  // from, to, tag
  std::map<Lane, std::vector<const Entry*>> sends, recvs;
  std::set<std::pair<int, int>> any;  // (rank, tag) with a recv of any source that is open
  std::map<int, const History*> ranks;
  for (const History* h : group) {
    if (last_of(h->pairs) >= kRecords)
      continue;  // it has forgotten its first: no numbers to compare
    ranks[h->rank] = h;
    for (const Entry& e : h->pairs) {
      if (e.op == OpKind::send)
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

/// Ranks of the world that wait for each other, each in the last call that it made.
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
    const bool pair = b.entry->op == OpKind::send || b.entry->op == OpKind::recv;
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
  found.verdict.sentence = "ranks wait for each other in a circle: " + text +
                           "; every rank must make its calls in the same order";
  return found;
}

/// Who came last to a call, where it mattered most.
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

const char* name_of(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::agree:
      return "agree";
    case Verdict::different_call:
      return "different_call";
    case Verdict::different_pair:
      return "different_pair";
    case Verdict::cycle:
      return "cycle";
    case Verdict::missing_call:
      return "missing_call";
    case Verdict::missing_message:
      return "missing_message";
  }
  return "?";
}

std::string text_of(const Entry& e) {
  std::string text = call_text(e.op, e.dtype, e.red, e.root, e.count);
  if (!e.site.empty()) text += " at " + e.site;
  return text;
}

Verdict judge(const std::vector<History>& histories) {
  std::map<std::pair<std::string, uint64_t>, Group> lives;
  for (const History& h : histories) lives[{h.group, h.epoch}].push_back(&h);
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
    // What differs comes before what is missing: that may only follow from it.
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

std::string last_calls(const std::vector<History>& histories, int count) {
  std::string text;
  for (const History& h : histories) {
    std::vector<std::pair<const Entry*, bool>> all;
    for (const Entry& e : h.calls) all.emplace_back(&e, false);
    for (const Entry& e : h.pairs) all.emplace_back(&e, true);
    std::stable_sort(all.begin(), all.end(),
                     [](auto& a, auto& b) { return a.first->posted < b.first->posted; });
    text += fmt::format("group {}, {} (pid {}{})\n", h.group, name_of(h), h.pid,
                        h.host.empty() ? "" : " on " + h.host);
    if (!h.why.empty()) text += fmt::format("  failed: {}\n", h.why);
    if (h.signal) text += fmt::format("  signal {}\n", h.signal);
    if (h.writer != h.rank) text += fmt::format("  written by rank {}\n", h.writer);
    const size_t n = all.size(),
                 skip = n > static_cast<size_t>(count) ? n - static_cast<size_t>(count) : 0;
    for (size_t i = skip; i < n; ++i) {
      const auto& [e, pair] = all[i];
      const char* state = e->state == CallState::done      ? "done"
                          : e->state == CallState::matched ? "moving"
                          : e->state == CallState::failed  ? "failed"
                                                           : "waits";
      text += fmt::format("  {:>7} {:<7} {:>10} before the dump  {}{}\n",
                          pair ? std::string("-") : std::to_string(e->seq), state,
                          seconds(h.written - e->posted), text_of(*e),
                          pair ? fmt::format(" with tag {}", e->tag) : "");
    }
    if (n == 0) text += "  no calls\n";
  }
  return text;
}

}  // namespace trireme::flight
