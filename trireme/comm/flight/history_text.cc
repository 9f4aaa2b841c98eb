// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/flight/findings.h"

// The texts of verdicts and tables about ranks and calls.
namespace trireme::flight {

const Entry* find(const std::vector<Entry>& entries, uint64_t seq) {
  const auto it = std::lower_bound(entries.begin(), entries.end(), seq,
                                   [](const Entry& e, uint64_t n) { return e.seq < n; });
  return it != entries.end() && it->seq == seq ? &*it : nullptr;
}

std::string name_of(const History& h) {
  return h.rank == h.world_rank
             ? fmt::format("rank {}", h.rank)
             : fmt::format("rank {} (rank {} of the world)", h.rank, h.world_rank);
}

std::string seconds(double s) { return fmt::format("{:.3g} s", std::max(0.0, s)); }

bool has_failed(const Group& group) {
  return std::any_of(group.begin(), group.end(),
                     [](const History* h) { return !h->why.empty() || h->signal > 0; });
}

/// Describes the rank's last call of any kind.
std::string last_words(const History& h) {
  const Entry* last = nullptr;
  for (const auto* entries : {&h.calls, &h.pairs})
    if (!entries->empty() && (!last || entries->back().posted > last->posted))
      last = &entries->back();
  if (!last) return "it had made no call";
  const bool pair = facts_of(last->op).is_message;
  return fmt::format("its last was {}{}, {} before the dump",
                     pair ? "" : fmt::format("call {}, ", last->seq), text_of(*last),
                     seconds(h.written - last->posted));
}

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
