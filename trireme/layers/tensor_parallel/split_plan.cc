// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/split_plan.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme {

std::vector<Part> split_evenly(int64_t total, int64_t ranks, int64_t granule) {
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

std::string fault_of_split(const std::string& what, int64_t total, int64_t ranks, int64_t granule) {
  if (total < 1 || granule < 1)
    return fmt::format("{} of {} in granules of {}: both must be at least 1", what, total, granule);
  const int64_t granules = (total + granule - 1) / granule;
  if (granules >= ranks) return "";
  return fmt::format(
      "{} of {} in granules of {} gives {} parts for {} ranks of the tensor-parallel group: use "
      "fewer ranks{}",
      what, total, granule, granules, ranks, granule > 1 ? " or a smaller granule" : "");
}

std::string fault_of_heads(int64_t heads, int64_t kv_heads, int64_t ranks) {
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

HeadParts split_heads(int64_t heads, int64_t kv_heads, int64_t ranks, int64_t rank) {
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

std::vector<Part> qkv_rows(const HeadParts& parts, int64_t heads, int64_t kv_heads,
                           int64_t head_width) {
  const int64_t d = head_width;
  return {{parts.queries.begin * d, parts.queries.length * d},
          {(heads + parts.keys.begin) * d, parts.keys.length * d},
          {(heads + kv_heads + parts.keys.begin) * d, parts.keys.length * d}};
}

}  // namespace trireme
