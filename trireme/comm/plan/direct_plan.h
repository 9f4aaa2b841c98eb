// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/plan/plan.h"

namespace trireme::plan {

/// One round: each of the first `owners` of the party receives its part of `whole` from all others
/// and adds them in the group's order. Scratch: the parts of the others.
inline void direct_reduce_scatter(Builder& b, const Party& party, int owners, Range whole,
                                  int round) {
  if (party.me < 0) return;
  auto part = [&](int i) {
    return part_of(whole, static_cast<size_t>(owners), static_cast<size_t>(i));
  };
  for (int i = 0; i < owners; ++i)
    if (i != party.me) b.send(round, party.ranks[static_cast<size_t>(i)], {false, part(i)});
  if (party.me >= owners) return;
  const Range mine = part(party.me);
  std::vector<Span> place;  // of each rank's part
  size_t offset = 0;
  for (int i = 0; i < party.size(); ++i) {
    if (i == party.me) {
      place.push_back({false, mine});
      continue;
    }
    place.push_back({true, {offset, offset + mine.size()}});
    offset += mine.size();
    b.recv(round, party.ranks[static_cast<size_t>(i)], place.back());
  }
  for (auto [i, j] : pairwise_order(party.size())) {
    Span &left = place[static_cast<size_t>(i)], &right = place[static_cast<size_t>(j)];
    if (!right.scratch) {  // the result stays in the tensor
      b.reduce(round, right, left, true);
      left = right;
    } else {
      b.reduce(round, left, right, false);
    }
  }
}

/// One round: the first `owners` send their part of `whole` to all others.
inline void direct_all_gather(Builder& b, const Party& party, int owners, Range whole, int round) {
  if (party.me < 0) return;
  auto part = [&](int i) {
    return part_of(whole, static_cast<size_t>(owners), static_cast<size_t>(i));
  };
  for (int i = 0; i < party.size(); ++i) {
    if (i == party.me) continue;
    const int peer = party.ranks[static_cast<size_t>(i)];
    if (party.me < owners) b.send(round, peer, {false, part(party.me)});
    if (i < owners) b.recv(round, peer, {false, part(i)});
  }
}

/// Direct all-reduce: every rank sends each chunk to its owner, which adds in the group's order and
/// sends the result to all. Two rounds of n − 1 messages, 2(n−1)/n · count. Same bits as the
/// group's all_reduce.
inline Plan direct_plan(int rank, int n, size_t count) {
  Builder b;
  const Party all = Party::everyone(rank, n);
  if (n > 1) {
    direct_reduce_scatter(b, all, n, {0, count}, 0);
    direct_all_gather(b, all, n, {0, count}, 1);
  }
  return b.take(n > 1 ? 2 : 0);
}

}  // namespace trireme::plan
