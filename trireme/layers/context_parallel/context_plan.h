// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/layers/tensor_parallel/split_plan.h"

// Which places of a row each rank of a context-parallel group has. Pure: integers in, values out,
// without LibTorch, and all in this header: the planner (trireme/planner) includes it too.
namespace trireme {

/// How ranks put attention together of which each has some of the positions.
enum class ContextMethod : uint8_t {
  ring,       // keys and values go round, a rank at a time, while the block at hand is computed
  gather,     // every rank gathers all keys and values
  all_to_all  // each rank gets all positions of some of the heads (Ulysses)
};

/// Which positions a rank has.
enum class ContextBalance : uint8_t {
  /// Of 2 · ranks chunks those numbered r and 2 · ranks - 1 - r: under a causal mask every rank
  /// then sees as many pairs of places.
  head_tail,
  none  // one range, in order: the last rank computes most
};

/// Why `time` positions cannot be divided so that each rank gets one, or "".
inline std::string fault_of_context(int64_t time, int64_t ranks) {
  if (ranks < 1) return fmt::format("{} ranks of a context-parallel group", ranks);
  if (time >= ranks) return "";
  return fmt::format(
      "{} positions do not divide among {} context-parallel ranks: use at most {} of them", time,
      ranks, time);
}

/// The chunks of a row, in order: whose they are is `owner`.
struct ContextChunk {
  Part places;
  int64_t owner = 0;
};
inline std::vector<ContextChunk> context_chunks(int64_t time, int64_t ranks,
                                                ContextBalance balance) {
  const int64_t count = balance == ContextBalance::head_tail && ranks > 1 ? 2 * ranks : ranks;
  std::vector<ContextChunk> chunks;
  int64_t number = 0;
  for (const Part& part : split_evenly(time, count)) {
    chunks.push_back({part, std::min(number, count == ranks ? number : count - 1 - number)});
    ++number;
  }
  return chunks;
}

/// The places of a row that `rank` has, as ascending ranges that neither are empty nor touch. The
/// numbers must have no fault_of_context().
inline std::vector<Part> context_places(int64_t time, int64_t ranks, int64_t rank,
                                        ContextBalance balance) {
  std::vector<Part> own;
  for (const ContextChunk& c : context_chunks(time, ranks, balance)) {
    if (c.owner != rank || c.places.length == 0) continue;
    if (!own.empty() && own.back().end() == c.places.begin)
      own.back().length += c.places.length;
    else
      own.push_back(c.places);
  }
  return own;
}

/// How many places those are.
inline int64_t count_of(const std::vector<Part>& places) {
  int64_t count = 0;
  for (const Part& part : places) count += part.length;
  return count;
}

/// The places of the rank that has most: what activations of one row are kept for, of `time`
/// without context parallelism.
inline int64_t most_context_places(int64_t time, int64_t ranks, ContextBalance balance) {
  int64_t most = 0;
  for (int64_t r = 0; r < ranks; ++r)
    most = std::max(most, count_of(context_places(time, ranks, r, balance)));
  return most;
}

/// Places whose keys and values a rank holds beside its own while it attends, at most: two blocks
/// under way round the ring, or those of all ranks. (all_to_all has all places of 1 / ranks of the
/// heads: as much as its own.)
inline int64_t context_places_under_way(int64_t time, int64_t ranks, ContextMethod method,
                                        ContextBalance balance) {
  if (ranks == 1) return 0;
  if (method == ContextMethod::gather) return time;
  return (method == ContextMethod::ring ? 2 : 1) * most_context_places(time, ranks, balance);
}

/// Why heads cannot be divided by an all-to-all over `ranks`, or "". Key/value heads that are fewer
/// than ranks are repeated: their number divides the ranks then.
inline std::string fault_of_context_heads(int64_t heads, int64_t kv_heads, int64_t ranks) {
  if (heads % ranks != 0)
    return fmt::format(
        "{} query heads do not divide among {} context-parallel ranks, as all_to_all needs: choose "
        "a number of ranks that divides {}, or ring or all_gather",
        heads, ranks, heads);
  if (kv_heads >= ranks ? kv_heads % ranks != 0 : ranks % kv_heads != 0)
    return fmt::format(
        "{} key/value heads and {} context-parallel ranks: for all_to_all one of the two numbers "
        "must be a multiple of the other; ring and all_gather take any",
        kv_heads, ranks);
  return "";
}

}  // namespace trireme
