// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trireme/layers/context_parallel/context_plan.h"

// What goes round a ring of ranks that attend to each other's positions, and which blocks each of
// them computes. Pure: integers in, values out.
namespace trireme {

/// Queries and keys of which at least one pair is visible under a causal mask.
struct VisibleBlock {
  Part queries, keys;
  bool operator==(const VisibleBlock&) const = default;
};

/// How many pairs of places of a block are visible.
inline int64_t visible_pairs(const Part& queries, const Part& keys) {
  int64_t pairs = 0;
  for (int64_t q = std::max(queries.begin, keys.begin); q < queries.end(); ++q)
    pairs += std::min(keys.end(), q + 1) - keys.begin;
  return pairs;
}

class RingPlan {
 public:
  RingPlan(int64_t time, int64_t ranks, ContextBalance balance) : ranks_(ranks) {
    for (int64_t r = 0; r < ranks; ++r) places_.push_back(context_places(time, ranks, r, balance));
    // The direction in which less travels: tails are seen by lower ranks alone, which come first
    // downwards; without balance a block is seen by higher ranks alone.
    step_ = balance == ContextBalance::head_tail ? ranks - 1 : 1;
  }

  int64_t ranks() const { return ranks_; }
  const std::vector<Part>& places(int64_t rank) const { return places_[at(rank)]; }
  /// To whom a rank sends at every hop, and who has a source's block after `hop` of them.
  int64_t next(int64_t rank) const { return (rank + step_) % ranks_; }
  int64_t holder(int64_t source, int64_t hop) const { return (source + hop * step_) % ranks_; }
  /// Whose block a rank has after `hop` hops.
  int64_t source(int64_t rank, int64_t hop) const {
    return (rank + hop * (ranks_ - step_)) % ranks_;
  }

  /// What `rank` computes with the block of `source`: every visible pair of places once, and no
  /// block of which nothing is visible. One whose queries come first in a row comes first.
  std::vector<VisibleBlock> blocks(int64_t rank, int64_t source) const {
    std::vector<VisibleBlock> all;
    for (const Part& queries : places(rank))
      for (const Part& keys : places(source))
        if (keys.begin < queries.end()) all.push_back({queries, keys});
    return all;
  }

  /// The ranges of a source's keys and values that take part in a hop (1 … ranks - 1): those that
  /// the rank at its end, or one behind it, sees something of.
  std::vector<Part> keys(int64_t source, int64_t hop) const {
    return used_between(source, hop, ranks_ - 1);
  }
  /// The ranges of their gradients that take part in a hop (2 … ranks, at whose end they are home):
  /// those of which a rank before it saw something.
  std::vector<Part> gradients(int64_t source, int64_t hop) const {
    return used_between(source, 1, hop - 1);
  }

 private:
  static size_t at(int64_t rank) { return static_cast<size_t>(rank); }

  // Ranges of which the holders after these hops see something.
  std::vector<Part> used_between(int64_t source, int64_t first, int64_t last) const {
    std::vector<Part> used;
    for (const Part& keys : places(source))
      for (int64_t hop = first; hop <= last; ++hop)
        if (keys.begin < places(holder(source, hop)).back().end()) {
          used.push_back(keys);
          break;
        }
    return used;
  }

  int64_t ranks_, step_ = 1;
  std::vector<std::vector<Part>> places_;  // by rank
};

}  // namespace trireme
