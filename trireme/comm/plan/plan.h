// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// A collective as data: what one rank sends, receives and adds in each round. These are pure
// functions of integers; counts are in elements, and dtypes, tensors and sockets play no part.
namespace trireme::plan {

struct Range {
  size_t begin = 0, end = 0;
  constexpr size_t size() const { return end - begin; }
  constexpr bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

/// Part `i` of `n` consecutive parts that cover `whole` and differ in size by at most one element.
constexpr Range part_of(Range whole, size_t n, size_t i) {
  const size_t base = whole.size() / n, rest = whole.size() % n;
  const size_t begin = whole.begin + i * base + std::min(i, rest);
  return {begin, begin + base + (i < rest ? 1 : 0)};
}

constexpr Range intersect(Range a, Range b) {
  const size_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? Range{begin, end} : Range{begin, begin};
}

/// A range of elements of the caller's tensor or of the plan's scratch buffer.
struct Span {
  bool scratch = false;
  Range at;
};

struct Step {
  enum Kind : uint8_t { send, recv, reduce };
  Kind kind;
  int round;
  int peer = -1;  // of send and recv
  Span span;      // sent, received into, or the result of the reduction
  Span other;     // reduce: span = span ∘ other, or other ∘ span where other_first
  bool other_first = false;
};

/// Steps in execution order. Within a round, sends and receives run together and touch different
/// elements; the reductions follow when all messages have arrived. The k-th message from a to b in
/// a round is the k-th that b receives from a in that round and has the same size: a rank that
/// posts a round, waits for it and goes on cannot deadlock.
struct Plan {
  std::vector<Step> steps;
  size_t scratch = 0;  // elements
  int rounds = 0;      // the same number on every rank

  /// The number of elements that this rank sends or receives.
  size_t sent() const { return moved(Step::send); }
  size_t received() const { return moved(Step::recv); }

 private:
  size_t moved(Step::Kind kind) const {
    size_t sum = 0;
    for (const Step& s : steps)
      if (s.kind == kind) sum += s.span.at.size();
    return sum;
  }
};

/// The ranks that perform a part of a collective together, in order; `me` is the index of the rank
/// whose plan is being made, or -1 if it is not among them.
struct Party {
  std::vector<int> ranks;
  int me = -1;
  int size() const { return static_cast<int>(ranks.size()); }

  static Party everyone(int rank, int n) {
    Party p;
    for (int r = 0; r < n; ++r) p.ranks.push_back(r);
    p.me = rank;
    return p;
  }
  static Party of(std::vector<int> ranks, int rank) {
    const auto at = std::find(ranks.begin(), ranks.end(), rank);
    const int me = at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
    return {std::move(ranks), me};
  }
};

/// Collects the steps of one rank. Empty messages are left out at both ends.
class Builder {
 public:
  void send(int round, int peer, Span span) { add({Step::send, round, peer, span, {}, false}); }
  void recv(int round, int peer, Span span) { add({Step::recv, round, peer, span, {}, false}); }
  void reduce(int round, Span into, Span other, bool other_first) {
    add({Step::reduce, round, -1, into, other, other_first});
  }
  /// Receives a peer's values for `range` of the tensor into scratch at `offset`, then adds them.
  void recv_reduce(int round, int peer, Range range, size_t offset, bool peer_first) {
    const Span from{true, {offset, offset + range.size()}};
    recv(round, peer, from);
    reduce(round, {false, range}, from, peer_first);
  }

  Plan take(int rounds) {
    std::stable_sort(plan_.steps.begin(), plan_.steps.end(), [](const Step& a, const Step& b) {
      if (a.round != b.round) return a.round < b.round;
      return (a.kind == Step::reduce) < (b.kind == Step::reduce);
    });
    plan_.rounds = rounds;
    return std::move(plan_);
  }

 private:
  void add(const Step& step) {
    if (step.span.at.empty()) return;
    for (const Span& s : {step.span, step.other})
      if (s.scratch) plan_.scratch = std::max(plan_.scratch, s.at.end);
    plan_.steps.push_back(step);
  }
  Plan plan_;
};

/// The group's order of reduction over n ranks (split at the largest power of two below n,
/// recurse), as merges (i, j): the value at j is added on the right of the value at i. The result
/// is at 0.
inline std::vector<std::pair<int, int>> pairwise_order(int n) {
  std::vector<std::pair<int, int>> merges;
  for (int64_t stride = 1; stride < n; stride *= 2)
    for (int64_t i = 0; i + stride < n; i += 2 * stride)
      merges.emplace_back(static_cast<int>(i), static_cast<int>(i + stride));
  return merges;
}

}  // namespace trireme::plan
