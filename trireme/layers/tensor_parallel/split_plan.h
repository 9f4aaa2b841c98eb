// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

// Which part of a dimension each rank of a tensor-parallel group gets. Pure: integers in, values
// out, without LibTorch, and all in this header: the planner (trireme/planner) includes it too.
namespace trireme {

/// Elements [begin, begin + length) of a dimension.
struct Part {
  int64_t begin = 0, length = 0;
  int64_t end() const { return begin + length; }
  bool operator==(const Part&) const = default;
};

/// Divides `total` elements among `ranks` in order, in multiples of `granule` (the last one may be
/// cut short). Lengths differ by at most one granule; the later ranks have the longer parts.
inline std::vector<Part> split_evenly(int64_t total, int64_t ranks, int64_t granule = 1) {
  // The short granule is the last one. It goes to a rank that has one granule more than others, if
  // there is such a rank: so lengths differ by one granule and not by two.
  const int64_t granules = (total + granule - 1) / granule;
  const int64_t each = granules / ranks, more = granules % ranks;
  std::vector<Part> parts;
  int64_t begin = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t mine = each + (r >= ranks - more ? 1 : 0);
    const int64_t length = std::min(total - begin, mine * granule);
    parts.push_back({begin, length});
    begin += length;
  }
  return parts;
}

/// Why `total` cannot be divided so that each rank gets something, or "". `what`: "a vocabulary".
inline std::string fault_of_split(const std::string& what, int64_t total, int64_t ranks,
                                  int64_t granule = 1) {
  if (total < 1 || granule < 1)
    return fmt::format("{} of {} in granules of {}: both must be at least 1", what, total, granule);
  const int64_t granules = (total + granule - 1) / granule;
  if (granules >= ranks) return "";
  return fmt::format(
      "{} of {} in granules of {} gives {} parts for {} ranks of the tensor-parallel group: use "
      "fewer ranks{}",
      what, total, granule, granules, ranks, granule > 1 ? " or a smaller granule" : "");
}

/// A rank's heads of an attention layer.
struct HeadParts {
  Part queries, keys;   // in heads; values as keys
  int64_t sharers = 1;  // ranks that hold this rank's key/value heads, neighbours in the group
  bool speaks = true;   // this rank is the first of them
};

/// Why `heads` query heads in groups that share `kv_heads` key/value heads cannot be divided, or
/// "".
inline std::string fault_of_heads(int64_t heads, int64_t kv_heads, int64_t ranks) {
  if (heads < 1 || kv_heads < 1)
    return fmt::format("{} query heads and {} key/value heads: there must be at least one of each",
                       heads, kv_heads);
  if (heads % kv_heads != 0)
    return fmt::format("{} query heads do not divide among {} key/value heads: choose a multiple",
                       heads, kv_heads);
  if (heads % ranks != 0)
    return fmt::format(
        "{} query heads do not divide among {} tensor-parallel ranks: choose a number of ranks "
        "that divides {}",
        heads, ranks, heads);
  if (kv_heads >= ranks ? kv_heads % ranks != 0 : ranks % kv_heads != 0)
    return fmt::format(
        "{} key/value heads and {} tensor-parallel ranks: one of the two numbers must be a "
        "multiple of the other",
        kv_heads, ranks);
  return "";
}

/// Whole heads to each rank. With fewer key/value heads than ranks each of them is held by
/// ranks / kv_heads ranks. The numbers must have no fault_of_heads().
inline HeadParts split_heads(int64_t heads, int64_t kv_heads, int64_t ranks, int64_t rank) {
  HeadParts parts;
  parts.queries = {rank * (heads / ranks), heads / ranks};
  if (kv_heads >= ranks) {
    parts.keys = {rank * (kv_heads / ranks), kv_heads / ranks};
  } else {
    parts.sharers = ranks / kv_heads;
    parts.keys = {rank / parts.sharers, 1};
    parts.speaks = rank % parts.sharers == 0;
  }
  return parts;
}

/// The rows of a fused projection [queries | keys | values] that these heads are.
inline std::vector<Part> qkv_rows(const HeadParts& parts, int64_t heads, int64_t kv_heads,
                                  int64_t head_width) {
  const int64_t d = head_width;
  return {{parts.queries.begin * d, parts.queries.length * d},
          {(heads + parts.keys.begin) * d, parts.keys.length * d},
          {(heads + kv_heads + parts.keys.begin) * d, parts.keys.length * d}};
}

}  // namespace trireme
