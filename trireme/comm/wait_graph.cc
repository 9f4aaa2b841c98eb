// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wait_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/comm/flight/cycle.h"

namespace trireme::detail {
namespace {

/// Whether rank q's record rules out that it has made, or will be seen to have made, the call that
/// rank r waits in.
bool has_not_come(const WaitRecord& q, const Waiting& w, int r) {
  const auto at = q.groups.find(w.group);
  if (at == q.groups.end()) return true;  // no call there yet
  const GroupCalls& calls = at->second;
  if (w.kind == WaitKind::collective) return calls.calls < w.number;
  if (!calls.all_messages || calls.any_source_tags.count(w.tag)) return false;
  const auto pair = calls.messages.find({r, w.tag});
  if (pair == calls.messages.end()) return true;
  return (w.kind == WaitKind::send ? pair->second.second : pair->second.first) < w.number;
}

const Waiting& waiting(const WaitRecords& records, int r) {
  static const Waiting nothing;
  const auto& record = records[static_cast<size_t>(r)];
  return record ? record->waiting : nothing;
}

}  // namespace

std::optional<std::string> find_circle(const WaitRecords& records, int self) {
  std::vector<std::vector<int>> needs(records.size());
  for (int r = 0; r < static_cast<int>(records.size()); ++r) {
    const Waiting& w = waiting(records, r);
    for (int q : w.ranks)
      if (q != r && waiting(records, q).kind != WaitKind::none &&
          has_not_come(*records[static_cast<size_t>(q)], w, r))
        needs[static_cast<size_t>(r)].push_back(q);
  }
  const std::vector<int> circle = flight::cycle_through(needs, self);
  if (circle.empty()) return std::nullopt;
  const auto lowest =
      static_cast<size_t>(std::min_element(circle.begin(), circle.end()) - circle.begin());
  std::string text = "ranks wait for each other: ";
  constexpr size_t kNamed = 6;
  for (size_t i = 0; i < std::min(circle.size(), kNamed); ++i)
    text += fmt::format("{}rank {} is in {}, and needs rank {}", i ? "; " : "",
                        circle[(lowest + i) % circle.size()],
                        waiting(records, circle[(lowest + i) % circle.size()]).text,
                        circle[(lowest + i + 1) % circle.size()]);
  if (circle.size() > kNamed) text += fmt::format("; and {} more", circle.size() - kNamed);
  return text + ". Every rank must make the same calls in the same order";
}

std::optional<std::string> find_left(const WaitRecords& records, int self) {
  const Waiting& w = waiting(records, self);
  for (int q : w.ranks) {
    const auto& record = records[static_cast<size_t>(q)];
    if (q == self || !record || !has_not_come(*record, w, self)) continue;
    const auto at = record->groups.find(w.group);
    if (at == record->groups.end() || !at->second.left) continue;
    return fmt::format(
        "rank {} left group {} after call {}; rank {} waits in {}. Every rank must make the same "
        "calls in the same order",
        q, w.group, at->second.calls, self, w.text);
  }
  return std::nullopt;
}

std::vector<int> find_absent(const WaitRecords& records, int self) {
  const Waiting& w = waiting(records, self);
  std::vector<int> absent;
  for (int q : w.ranks) {
    const auto& record = records[static_cast<size_t>(q)];
    if (q != self && (!record || has_not_come(*record, w, self))) absent.push_back(q);
  }
  return absent;
}

}  // namespace trireme::detail
