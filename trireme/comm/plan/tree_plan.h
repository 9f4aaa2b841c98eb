// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/plan/plan.h"

namespace trireme::plan {

/// Binomial tree: sums go up to rank 0 and the result comes down, in 2·log2(n) rounds. Tensors are
/// sent whole: 2(n−1) messages of `count` in all, the minimum; rank 0 handles log2(n) of them each
/// way. For small calls. Same bits as the group's all_reduce.
inline Plan tree_plan(int rank, int n, size_t count) {
  Builder b;
  const Range whole{0, count};
  int levels = 0;
  while ((int64_t{1} << levels) < n) ++levels;
  for (int k = 0; k < levels; ++k) {
    const int stride = 1 << k, down = 2 * levels - 1 - k;
    if (rank % stride) continue;  // already above it
    if (rank & stride) {
      b.send(k, rank - stride, {false, whole});
      b.recv(down, rank - stride, {false, whole});
    } else if (rank + stride < n) {
      b.recv_reduce(k, rank + stride, whole, 0, false);
      b.send(down, rank + stride, {false, whole});
    }
  }
  return b.take(2 * levels);
}

namespace binary_tree {

/// A binary tree over 0 … n−1 whose odd numbers are leaves: the parent of r, or -1 for the root 0.
inline int parent(int r, int n) {
  if (r == 0) return -1;
  const int lowest = r & -r;
  const int up = (r & ~lowest) | (lowest << 1);
  return up < n ? up : r & ~lowest;
}

struct Node {
  int parent = -1;
  std::vector<int> children;  // ascending; at most two
  int height = 0;             // 0: a leaf
  int depth = 0;
};

inline std::vector<Node> nodes(int n) {
  std::vector<Node> all(static_cast<size_t>(n));
  for (int r = 1; r < n; ++r) {
    all[static_cast<size_t>(r)].parent = parent(r, n);
    all[static_cast<size_t>(parent(r, n))].children.push_back(r);
  }
  for (int r = 0; r < n; ++r) {
    int steps = 0;
    for (int at = r; at >= 0; at = all[static_cast<size_t>(at)].parent, ++steps)
      all[static_cast<size_t>(at)].height = std::max(all[static_cast<size_t>(at)].height, steps);
    all[static_cast<size_t>(r)].depth = steps - 1;
  }
  return all;
}

/// Maps a rank to its number in the second tree, and back: leaves of the first are inner nodes of
/// the second.
inline int second(int rank, int n) { return n % 2 ? (rank + n - 1) % n : n - 1 - rank; }
inline int second_rank(int label, int n) { return n % 2 ? (label + 1) % n : n - 1 - label; }

}  // namespace binary_tree

/// Two binary trees over halves of the elements; an inner node of one is a leaf of the other
/// (except one rank if n is odd), so that every rank sends about 2 · count. About 2·log2(n) rounds.
/// The order of reduction is that of the trees: equal bits on all ranks, but not those of the
/// group's order. (Sanders, Speck & Träff, 2009)
inline Plan double_tree_plan(int rank, int n, size_t count) {
  Builder b;
  const auto tree = binary_tree::nodes(n);
  const int height = tree[0].height;
  size_t offset = 0;
  for (int t = 0; t < 2; ++t) {
    const Range half = part_of({0, count}, 2, static_cast<size_t>(t));
    auto rank_of = [&](int label) { return t ? binary_tree::second_rank(label, n) : label; };
    const auto& me = tree[static_cast<size_t>(t ? binary_tree::second(rank, n) : rank)];
    // The way down mirrors the way up.
    auto down = [&](const binary_tree::Node& child) { return 2 * height - 1 - child.height; };
    for (int label : me.children) {
      const auto& child = tree[static_cast<size_t>(label)];
      b.recv_reduce(child.height, rank_of(label), half, offset, false);
      b.send(down(child), rank_of(label), {false, half});
      offset += half.size();
    }
    if (me.parent >= 0) {
      b.send(me.height, rank_of(me.parent), {false, half});
      b.recv(down(me), rank_of(me.parent), {false, half});
    }
  }
  return b.take(2 * height);
}

}  // namespace trireme::plan
