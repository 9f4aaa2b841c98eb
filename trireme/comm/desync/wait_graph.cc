// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/wait_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/comm/flight/cycle.h"
#include "trireme/rendezvous/join.h"

namespace trireme::detail {
namespace {

/// Whether rank q's record rules out that it has made, or will be seen to have made, the call that
/// rank r waits for.
bool has_not_come(const WaitRecord& q, const Waiting& w, int r) {
  const auto at = q.groups.find(w.group);
  if (at == q.groups.end()) return true;  // no call in that group yet
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

namespace {

std::optional<std::string> find_wrong_part(const WaitRecords& records, int self) {
  const Waiting& w = waiting(records, self);
  const size_t n = w.ranks.size();
  const auto tells = [&](const Waiting& p) {
    return p.kind == w.kind && p.group == w.group && p.number == w.number && p.ranks == w.ranks &&
           p.sends.size() == n && p.expects.size() == n;
  };
  const auto differs = [&](size_t from, size_t to) -> std::optional<std::string> {
    const Waiting &a = waiting(records, w.ranks[from]), &b = waiting(records, w.ranks[to]);
    if (!tells(a) || !tells(b) || a.sends[to] == b.expects[from]) return std::nullopt;
    return fmt::format(
        "{}: rank {} sends {} elements to rank {}, but rank {} expects {}. Both ends of a pair "
        "must "
        "agree",
        a.text, w.ranks[from], a.sends[to], w.ranks[to], w.ranks[to], b.expects[from]);
  };
  if (w.kind != WaitKind::collective || !tells(w)) return std::nullopt;
  // In the same order on every rank, so that all find the same cycle.
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to)
      if (w.ranks[from] == self || w.ranks[to] == self)
        if (auto text = differs(from, to)) return text;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_wrong_message(const WaitRecords& records, int self) {
  const Waiting& w = waiting(records, self);
  if (w.kind == WaitKind::collective) return find_wrong_part(records, self);
  if ((w.kind != WaitKind::send && w.kind != WaitKind::recv) || w.ranks.size() != 1)
    return std::nullopt;
  const int peer = w.ranks.front();
  const Waiting& p = waiting(records, peer);
  const WaitKind other = w.kind == WaitKind::send ? WaitKind::recv : WaitKind::send;
  if (p.kind != other || p.ranks != std::vector<int>{self} || p.group != w.group ||
      p.tag != w.tag || p.number != w.number || p.digest == w.digest)
    return std::nullopt;
  const int low = std::min(self, peer), high = std::max(self, peer);
  return fmt::format(
      "two ranks do not agree on a message: rank {} is in {}; rank {} is in {}. Both ends must "
      "name "
      "the same dtype and count",
      low, waiting(records, low).text, high, waiting(records, high).text);
}

bool is_first_to_wait(const WaitRecords& records, int self) {
  const Waiting& w = waiting(records, self);
  for (int r = 0; r < self; ++r) {
    const Waiting& p = waiting(records, r);
    if (p.kind != WaitKind::none && p.kind == w.kind && p.group == w.group &&
        p.number == w.number && p.ranks == w.ranks && p.tag == w.tag)
      return false;
  }
  return true;
}

namespace {

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

std::string deadline_text(Duration left) {
  return fmt::format("A rank may be late; the call's deadline is in {:.0f} s", seconds(left));
}

}  // namespace

std::string late_text(const WaitRecords& records, int self, Duration waited, Duration left) {
  const Waiting& w = waiting(records, self);
  const std::vector<int> absent = find_absent(records, self);
  std::string text =
      fmt::format("rank {} has waited {:.1f} s in {}", self, seconds(waited), w.text);
  std::vector<int> with;
  for (int q : w.ranks)
    if (q != self && waiting(records, q).kind == w.kind && waiting(records, q).group == w.group &&
        waiting(records, q).number == w.number && w.kind == WaitKind::collective)
      with.push_back(q);
  if (!with.empty())
    text += fmt::format(", as {} rank{} {}", with.size() == 1 ? "has" : "have",
                        with.size() == 1 ? "" : "s", name_ranks(with));
  if (w.kind == WaitKind::none) return text + ". " + deadline_text(left);
  if (absent.empty()) return text + ". All have come to it. " + deadline_text(left);
  text += fmt::format(", for rank{} {}", absent.size() == 1 ? "" : "s", name_ranks(absent));
  constexpr size_t kNamed = 8;
  for (size_t i = 0; i < std::min(absent.size(), kNamed); ++i) {
    const auto& record = records[static_cast<size_t>(absent[i])];
    text += fmt::format(
        "{} rank {} {}", i ? ";" : ":", absent[i],
        record && !record->waiting.text.empty()
            ? "is in " + record->waiting.text
            : "is not waiting in a call: it computes, reads data, is stopped or has ended");
  }
  if (absent.size() > kNamed) text += fmt::format("; and {} more", absent.size() - kNamed);
  return text + ". " + deadline_text(left);
}

std::string alone_text(const Waiting& what, Duration waited, Duration left) {
  return fmt::format(
      "this rank has waited {:.1f} s in {} without news of the other ranks: the store through "
      "which they report does not answer. {}",
      seconds(waited), what.text.empty() ? "a call" : what.text, deadline_text(left));
}

}  // namespace trireme::detail
