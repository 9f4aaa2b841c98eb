// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/read_deal.h"

namespace trireme {

/// The blocks of a step that a rank needs, which each rank tells the others.
struct BlocksWanted {
  std::string where;          // equal on ranks that read the same file through the same page cache
  std::vector<int64_t> ends;  // begin, end, begin, end, …
  TRIREME_FIELDS(where, ends)
  std::vector<BlockRange> ranges() const;
};

/// Of this rank, by its plan; `where` only if it is `shared` with other ranks. Does not throw for
/// what is wrong with the files.
BlocksWanted blocks_wanted(const OpenedStep& opened, const LoadPlan& plan, bool shared);

/// Opens the files that the plan reads; of the blocks that the ranks of this host want together
/// this rank reads its share, and compares their checksums. From then on they are in the host's
/// page cache, from which every rank takes what it wants. Corrupt, naming the tensor;
/// ResourceError.
///
/// Filling is a pass of its own, from that cache: in one pass the first blocks would be in the
/// state before the last one is known to be good, on this rank and on all others, and a load that
/// fails must leave the state as it was. A copy of it to fall back on is memory that nobody has.
void open_and_verify(OpenedStep& opened, const std::vector<BlocksWanted>& all, size_t rank);

/// Of Python's files: the parts that the plan reads. Corrupt.
void verify_foreign(const OpenedStep& opened, const LoadPlan& plan);

/// Every block of the step.
void verify_all_blocks(OpenedStep& opened);

}  // namespace trireme
