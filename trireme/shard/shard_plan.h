// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// Who owns which range. Pure: sizes in, ranges out.
namespace trireme {

/// Parameters and shards begin at multiples of it (elements): a block of the norms (optim/
/// norm_kernels.h) then lies on one rank, so that sharded norms have the bits of whole ones.
inline constexpr int64_t kShardAlign = 1024;

/// Parameters packed into a flat buffer that `ranks` ranks share in equal parts.
struct ShardPlan {
  int ranks = 1;
  std::vector<int64_t> numels;   // of each parameter
  std::vector<int64_t> offsets;  // where it begins on the flat buffer
  int64_t shard = 0;             // elements that a rank owns, padding included
  int64_t flat_elements() const { return shard * ranks; }
};

/// A part of one parameter that a rank owns.
struct ShardPiece {
  size_t parameter = 0;
  int64_t begin = 0;   // in the parameter
  int64_t length = 0;  // > 0
  int64_t offset = 0;  // in the shard
  bool operator==(const ShardPiece&) const = default;
};

inline ShardPlan plan_shards(std::vector<int64_t> numels, int ranks, int64_t align = kShardAlign) {
  const auto up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  ShardPlan plan{ranks, std::move(numels), {}, 0};
  int64_t end = 0;
  for (int64_t n : plan.numels) {
    plan.offsets.push_back(end);
    end += up(n, align);
  }
  plan.shard = up(end, align * ranks) / ranks;
  return plan;
}

/// What `rank` owns, in the order of the flat buffer: at most one piece of each parameter.
inline std::vector<ShardPiece> pieces_of(const ShardPlan& plan, int rank) {
  std::vector<ShardPiece> pieces;
  const int64_t first = plan.shard * rank, last = first + plan.shard;
  for (size_t p = 0; p < plan.numels.size(); ++p) {
    const int64_t begin = std::max(first, plan.offsets[p]);
    const int64_t end = std::min(last, plan.offsets[p] + plan.numels[p]);
    if (begin < end) pieces.push_back({p, begin - plan.offsets[p], end - begin, begin - first});
  }
  return pieces;
}

}  // namespace trireme
