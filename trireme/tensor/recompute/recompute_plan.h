// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"

// Which blocks of a network to compute again in backward, so that its activations fit into a
// budget. Pure: bytes in, blocks out.
namespace trireme {

/// What backward needs of a block's forward, in bytes.
struct BlockBytes {
  int64_t kept = 0;        // all inner values stay
  int64_t recomputed = 0;  // they are dropped; what still stays (the block's output)
};

struct ActivationBytes {
  int64_t before = 0;              // of what comes before the blocks
  std::vector<BlockBytes> blocks;  // in forward order
  int64_t after = 0;               // of what comes after them
};

/// The most that is alive at once: at the end of forward, or while backward is in a block that it
/// has just computed again (the values of later blocks are gone then).
TRIREME_API int64_t peak_bytes(const ActivationBytes& bytes, const std::vector<bool>& recompute);

struct RecomputePlan {
  std::vector<bool> recompute;  // for each block
  int64_t blocks = 0;           // how many of them
  int64_t peak = 0;
  bool fits = false;  // false: every block is recomputed, and peak is above the budget still
};

/// The fewest blocks with which the peak is within the budget, whatever their sizes.
/// UsageError for negative sizes. O(blocks²).
TRIREME_API RecomputePlan plan_recompute(const ActivationBytes& bytes, int64_t budget);

/// Every k-th of `blocks` (the k-th is the first); 0: none.
TRIREME_API std::vector<bool> every_kth(int64_t blocks, int64_t k);

}  // namespace trireme
