// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

// all_to_all through staging buffers. Each rank stages its parts for the others as one stream,
// starting with that for its right neighbour, so that at any time the ranks read from different
// peers. Pure functions of integers. `part(q)` is the number of elements that the rank sends to
// rank q.
namespace trireme::local {

/// The offset of the part of `rank` for `to` in the stream of `rank`; for to == rank, the stream's
/// length.
template <class Part>
size_t stream_offset(const Part& part, int size, int rank, int to) {
  size_t at = 0;
  for (int q = (rank + 1) % size; q != to && q != rank; q = (q + 1) % size)
    at += static_cast<size_t>(part(q));
  return at;
}

/// Which of `count` elements that begin at `offset` in the stream are in segment k of `each`
/// elements.
struct Piece {
  size_t of_part = 0;     // the first of them, in the part
  size_t of_segment = 0;  // and in the segment
  size_t size = 0;
};
constexpr Piece piece_of(size_t offset, size_t count, size_t each, uint64_t k) {
  const size_t begin = std::max(offset, static_cast<size_t>(k) * each);
  const size_t end = std::min(offset + count, static_cast<size_t>(k + 1) * each);
  if (begin >= end) return {};
  return {begin - offset, begin - static_cast<size_t>(k) * each, end - begin};
}

}  // namespace trireme::local
