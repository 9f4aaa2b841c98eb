// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "trireme/checkpoint/index.h"

// From which parts that were saved a wanted slice is put together. Pure; counts elements of the
// flat tensor.
namespace trireme {

/// `count` elements of part `part`, from its element `from` on, become those of the wanted slice
/// from `to` on.
struct LoadPiece {
  size_t part;
  int64_t from, to, count;
  bool operator==(const LoadPiece&) const = default;
};

/// Pieces rise and are together the wanted slice. Both have as many elements in all, and are
/// ranges.
inline std::vector<LoadPiece> plan_load(const IndexTensor& saved, const Slice& wanted) {
  const int64_t begin = flat_begin(wanted), end = begin + wanted.numel();
  std::vector<LoadPiece> pieces;
  for (size_t i = 0; i < saved.parts.size(); ++i) {
    const Slice& part = saved.parts[i].slice;
    const int64_t part_begin = flat_begin(part);
    const int64_t from = std::max(begin, part_begin);
    const int64_t to = std::min(end, part_begin + part.numel());
    if (from < to) pieces.push_back({i, from - part_begin, from - begin, to - from});
  }
  return pieces;
}

}  // namespace trireme
