// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/plan/plan.h"

// Recursive halving and doubling for any number of ranks, in the group's order of reduction.
//
// For a power of two, in round k a rank and the one whose bit k differs exchange halves of what
// they still hold and add; all_gather reverses this. For other numbers, the largest power of two
// forms the left part and the rest the right part, each on its own; then each right owner sends its
// sums to the left owners of those elements, which add them on the right, and the results return
// the same way. This is the group's split of the ranks, so the bits are those of its all_reduce.
// (Thakur, Rabenseifner & Gropp, 2005, fold the rest in first, which would give other bits.)
namespace trireme::plan {

namespace halving {

inline int left_size(int n) {
  int p = 1;
  while (p <= n / 2) p *= 2;
  return p;
}
inline int log2_of(int p) {
  int k = 0;
  while ((1 << k) < p) ++k;
  return k;
}
inline int reduce_rounds(int n) {
  const int p = left_size(n), rest = n - p;
  return rest ? std::max(log2_of(p), reduce_rounds(rest)) + 1 : log2_of(p);
}

/// Returns the lower or `upper` half of a range. Edges nest: what a rank of 2p owns is inside what
/// one of p owns.
inline Range half(Range r, bool upper) {
  const size_t middle = r.begin + (r.size() + 1) / 2;
  return upper ? Range{middle, r.end} : Range{r.begin, middle};
}
/// Returns what rank i holds after `steps` halvings.
inline Range held(Range whole, int i, int steps) {
  for (int k = 0; k < steps; ++k) whole = half(whole, i >> k & 1);
  return whole;
}

/// Covers ranks [lo, lo + n) of the party; afterwards the first left_size(n) of them own the sums.
inline void reduce_scatter(Builder& b, const Party& party, int lo, int n, Range whole, int round) {
  const int p = left_size(n), rest = n - p, me = party.me - lo;
  auto rank = [&](int i) { return party.ranks[static_cast<size_t>(lo + i)]; };
  if (me < p) {
    for (int k = 0; (1 << k) < p; ++k) {
      const int peer = me ^ (1 << k);
      const Range from = held(whole, me, k);
      b.send(round + k, rank(peer), {false, half(from, !(me >> k & 1))});
      b.recv_reduce(round + k, rank(peer), half(from, me >> k & 1), 0, peer < me);
    }
  } else {
    reduce_scatter(b, party, lo + p, rest, whole, round);
  }
  if (!rest) return;
  const int last = round + reduce_rounds(n) - 1, owners = left_size(rest);
  const int left_steps = log2_of(p), right_steps = log2_of(owners);
  if (me >= p && me - p < owners) {
    const Range mine = held(whole, me - p, right_steps);
    for (int i = 0; i < p; ++i)
      b.send(last, rank(i), {false, intersect(mine, held(whole, i, left_steps))});
  } else if (me < p) {
    const Range mine = held(whole, me, left_steps);
    for (int j = 0; j < owners; ++j) {
      const Range common = intersect(mine, held(whole, j, right_steps));
      b.recv_reduce(last, rank(p + j), common, common.begin - mine.begin, false);
    }
  }
}

/// The reverse, in as many rounds.
inline void all_gather(Builder& b, const Party& party, int lo, int n, Range whole, int round) {
  const int p = left_size(n), rest = n - p, me = party.me - lo;
  auto rank = [&](int i) { return party.ranks[static_cast<size_t>(lo + i)]; };
  if (rest) {
    const int owners = left_size(rest);
    const int left_steps = log2_of(p), right_steps = log2_of(owners);
    if (me >= p && me - p < owners) {
      const Range mine = held(whole, me - p, right_steps);
      for (int i = 0; i < p; ++i)
        b.recv(round, rank(i), {false, intersect(mine, held(whole, i, left_steps))});
    } else if (me < p) {
      const Range mine = held(whole, me, left_steps);
      for (int j = 0; j < owners; ++j)
        b.send(round, rank(p + j), {false, intersect(mine, held(whole, j, right_steps))});
    }
    ++round;
  }
  if (me >= p) return all_gather(b, party, lo + p, rest, whole, round);
  for (int k = log2_of(p) - 1; k >= 0; --k, ++round) {
    const int peer = me ^ (1 << k);
    b.send(round, rank(peer), {false, held(whole, me, k + 1)});
    b.recv(round, rank(peer), {false, held(whole, peer, k + 1)});
  }
}

}  // namespace halving

/// Recursive halving and doubling: 2·log2(n) rounds (about two more if n is not a power of two) and
/// 2(n−1)/n · count for a power of two, else at most 2 · count. Same bits as the group's
/// all_reduce.
inline Plan halving_doubling_plan(int rank, int n, size_t count) {
  Builder b;
  const Party all = Party::everyone(rank, n);
  const int rounds = halving::reduce_rounds(n);
  halving::reduce_scatter(b, all, 0, n, {0, count}, 0);
  halving::all_gather(b, all, 0, n, {0, count}, rounds);
  return b.take(2 * rounds);
}

}  // namespace trireme::plan
