// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/read_deal.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme {

/// The blocks of a step that a rank needs, which each rank tells the others.
struct BlocksWanted {
  std::string where;          // equal on ranks that read the same file through the same page cache
  std::vector<int64_t> ends;  // begin, end, begin, end, …
  bool check_first = false;   // LoadOptions::check_first
  TRIREME_FIELDS(where, ends, check_first)
  std::vector<BlockRange> ranges() const;
};

/// Of this rank, by its plan; `where` only if it is `shared` with other ranks. Does not throw for
/// what is wrong with the files.
BlocksWanted blocks_wanted(const OpenedStep& opened, const LoadPlan& plan, bool shared);

/// Which of a step's blocks a rank reads, and how.
struct BlockShare {
  /// Of the blocks that the ranks of a host want, those that this one reads and compares. The
  /// others take them from the host's page cache: with LoadOptions::check_first once all have been
  /// compared, else at the same time (who comes first has the disk read them), and hear at the
  /// load's end whether they were good.
  std::vector<BlockRange> own;
  std::vector<BlockRange> alone;   // of those, what no other rank of the host wants
  std::vector<BlockRange> of_all;  // what each rank wants, if they are several, all on one host
};
BlockShare share_of(const std::vector<BlocksWanted>& all, size_t rank);

/// Opens the files that have these blocks. Corrupt, ResourceError.
void open_files_of(OpenedStep& opened, const std::vector<BlockRange>& blocks);

/// Reads blocks of opened files and compares their checksums. Corrupt, naming the tensor;
/// ResourceError.
void verify_blocks(const OpenedStep& opened, const std::vector<BlockRange>& blocks);

/// Corrupt where the checksum of a part's block, at these bytes of it, is another one.
void compare_checksum(const OpenedStep& opened, const IndexPart& part, uint64_t number,
                      uint64_t begin, uint64_t size, const Checksum& checksum);

/// Of Python's files: the parts that the plan reads. Corrupt.
void verify_foreign(const OpenedStep& opened, const LoadPlan& plan);

/// Every block of the step.
void verify_all_blocks(OpenedStep& opened);

}  // namespace trireme
