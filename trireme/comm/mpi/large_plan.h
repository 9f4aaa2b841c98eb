// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

// MPI-3 counts are ints, and not every library is correct above 2 GiB in one call. Larger calls are
// split: a reduction or broadcast into pieces, anything that moves parts between ranks into
// messages of pairs. All ranks know the same sizes, so they split alike.
namespace trireme::detail {

struct MpiLimits {
  int64_t elements = std::numeric_limits<int32_t>::max();  // of all ranks together, per call
  int64_t bytes = int64_t{1} << 30;                        // of one rank's part
  /// The number of elements of `size` bytes in one piece.
  int64_t piece(int64_t size) const {
    return std::max<int64_t>(1, std::min(elements, bytes / size));
  }
  /// Whether one call may move a part of `count` elements for each of `ranks` ranks.
  bool fit(int64_t count, int64_t size, int64_t ranks) const {
    return count <= piece(size) && count <= elements / std::max<int64_t>(1, ranks);
  }
};

struct MpiPiece {
  int64_t begin;
  int32_t count;
  bool operator==(const MpiPiece&) const = default;
};

/// Returns [0, count) in pieces of at most `limit`, in order; an empty call still has one empty
/// piece.
inline std::vector<MpiPiece> mpi_pieces(int64_t count, int64_t limit) {
  std::vector<MpiPiece> pieces;
  for (int64_t at = 0; at < count; at += limit)
    pieces.push_back({at, static_cast<int32_t>(std::min(limit, count - at))});
  if (pieces.empty()) pieces.push_back({0, 0});
  return pieces;
}

}  // namespace trireme::detail
