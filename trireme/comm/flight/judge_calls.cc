// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "trireme/comm/flight/findings.h"

namespace trireme::flight {
namespace {

auto words_of(const Entry& e) {  // what must agree, as the digest has it
  return std::tuple(e.op, e.dtype, e.red, e.root, facts_of(e.op).is_uneven ? 0 : e.count);
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

}  // namespace

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
    // A rank that dumped before the others arrived says nothing.
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

}  // namespace trireme::flight
