// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// Which of the ranks that want the same blocks of a step reads which of them from the disk. Pure.
namespace trireme {

/// Blocks [begin, end) of a step, whose blocks are numbered through.
struct BlockRange {
  int64_t begin = 0, end = 0;
  bool operator==(const BlockRange&) const = default;
};

/// Sorted, without overlaps, neighbours joined.
std::vector<BlockRange> joined(std::vector<BlockRange> ranges);

/// Adds a range, to the last one where it touches that.
void append(std::vector<BlockRange>& ranges, const BlockRange& range);

/// What is in both, and what is in `a` alone. All as joined() gives them.
std::vector<BlockRange> in_both(const std::vector<BlockRange>& a, const std::vector<BlockRange>& b);
std::vector<BlockRange> without(const std::vector<BlockRange>& a, const std::vector<BlockRange>& b);

/// Whether a block is in one of the ranges, as joined() gives them.
bool has_block(const std::vector<BlockRange>& ranges, int64_t block);

/// `wanted` by rank, each as joined() gives them → what each reads: of what it wants itself, and
/// each block that somebody wants once.
std::vector<std::vector<BlockRange>> deal_reads(const std::vector<std::vector<BlockRange>>& wanted);

}  // namespace trireme
