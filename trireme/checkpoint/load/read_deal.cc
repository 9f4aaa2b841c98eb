// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/read_deal.h"

#include <algorithm>
#include <set>

#include "trireme/checkpoint/save/write_deal.h"

namespace trireme {
namespace {

/// Blocks that the same ranks want.
struct Stretch {
  int64_t begin;
  SharedBytes blocks;
};

std::vector<Stretch> stretches_of(const std::vector<std::vector<BlockRange>>& wanted) {
  struct Edge {
    int64_t at;
    size_t rank;
    bool begins;
  };
  std::vector<Edge> edges;
  for (size_t r = 0; r < wanted.size(); ++r)
    for (const BlockRange& range : wanted[r]) {
      edges.push_back({range.begin, r, true});
      edges.push_back({range.end, r, false});
    }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  std::vector<Stretch> stretches;
  std::set<size_t> now;
  int64_t at = 0;
  for (const Edge& edge : edges) {
    if (edge.at > at && !now.empty())
      stretches.push_back({at, {{now.begin(), now.end()}, edge.at - at}});
    at = edge.at;
    if (edge.begins)
      now.insert(edge.rank);
    else
      now.erase(edge.rank);
  }
  return stretches;
}

}  // namespace

std::vector<BlockRange> joined(std::vector<BlockRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const BlockRange& a, const BlockRange& b) { return a.begin < b.begin; });
  std::vector<BlockRange> out;
  for (const BlockRange& range : ranges)
    if (range.begin < range.end) append(out, range);
  return out;
}

void append(std::vector<BlockRange>& ranges, const BlockRange& range) {
  if (!ranges.empty() && ranges.back().begin <= range.begin && range.begin <= ranges.back().end)
    ranges.back().end = std::max(ranges.back().end, range.end);
  else
    ranges.push_back(range);
}

std::vector<BlockRange> in_both(const std::vector<BlockRange>& a,
                                const std::vector<BlockRange>& b) {
  std::vector<BlockRange> out;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const BlockRange both{std::max(x->begin, y->begin), std::min(x->end, y->end)};
    if (both.begin < both.end) out.push_back(both);
    ++(x->end < y->end ? x : y);
  }
  return out;
}

std::vector<BlockRange> without(const std::vector<BlockRange>& a,
                                const std::vector<BlockRange>& b) {
  std::vector<BlockRange> out;
  auto y = b.begin();
  for (BlockRange left : a) {
    while (y != b.end() && y->end <= left.begin) ++y;
    for (auto taken = y; taken != b.end() && taken->begin < left.end; ++taken) {
      if (left.begin < taken->begin) out.push_back({left.begin, taken->begin});
      left.begin = taken->end;
    }
    if (left.begin < left.end) out.push_back(left);
  }
  return out;
}

bool has_block(const std::vector<BlockRange>& ranges, int64_t block) {
  const auto range = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const BlockRange& r) { return r.end <= block; });
  return range != ranges.end() && range->begin <= block;
}

std::vector<std::vector<BlockRange>> deal_reads(
    const std::vector<std::vector<BlockRange>>& wanted) {
  const std::vector<Stretch> stretches = stretches_of(wanted);
  std::vector<SharedBytes> items;
  for (const Stretch& stretch : stretches) items.push_back(stretch.blocks);
  std::vector<std::vector<BlockRange>> dealt(wanted.size());
  for (const WriteShare& share : deal_writes(items, wanted.size(), 1)) {
    const Stretch& stretch = stretches[share.item];
    dealt[stretch.blocks.ranks[share.holder]].push_back(
        {stretch.begin + share.begin, stretch.begin + share.end});
  }
  for (auto& ranges : dealt) ranges = joined(std::move(ranges));
  return dealt;
}

}  // namespace trireme
