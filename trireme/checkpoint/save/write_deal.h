// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Which of the ranks that hold the same bytes writes which of them. Pure.
namespace trireme {

struct SharedBytes {
  std::vector<size_t> ranks;  // that hold them, rising
  int64_t bytes = 0;
};

/// Rank ranks[holder] of item `item` writes its bytes [begin, end).
struct WriteShare {
  size_t item = 0, holder = 0;
  int64_t begin = 0, end = 0;
  bool operator==(const WriteShare&) const = default;
};

/// Each byte is written once, and ranks write as equally much as their holdings allow, to within a
/// block per set of ranks. Items are divided at multiples of `block`. What few ranks hold is dealt
/// first.
std::vector<WriteShare> deal_writes(const std::vector<SharedBytes>& items, size_t ranks,
                                    int64_t block);

}  // namespace trireme
