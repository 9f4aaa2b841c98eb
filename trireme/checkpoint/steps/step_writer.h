// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/index.h"

// The files of a step, written by a rank, or by the launcher from what ranks have left in memory.
namespace trireme {

struct PlannedFile {
  std::string name;
  std::string head;    // all before the data
  int64_t size = 0;    // head included
  size_t creator = 0;  // the rank that writes the head
};

/// Neighbouring bytes of one tensor of a rank that go to a file. They begin at a block of the part
/// and end at one, or with the part.
struct PlannedWrite {
  size_t tensor = 0;  // of the rank's tensors
  int64_t from = 0;   // byte in the tensor's memory
  size_t file = 0;    // of the step's files
  int64_t at = 0;     // byte in the file
  int64_t bytes = 0;
  bool operator==(const PlannedWrite&) const = default;
};

/// What one rank does for a step.
struct WriteOrders {
  std::vector<PlannedFile> files;    // heads of those alone that this rank creates
  std::vector<PlannedWrite> writes;  // in the order of files and bytes
};

/// Blocks, each with a checksum, that a write of so many bytes has.
constexpr size_t blocks_in_write(int64_t bytes) {
  return static_cast<size_t>((bytes + CheckpointIndex::kBlock - 1) / CheckpointIndex::kBlock);
}

/// The bytes of the i-th write of the orders.
using BytesOfWrite = std::function<const void*(size_t i)>;
enum class BytesLast {
  until_the_next,  // call for bytes: they are copied on their way
  to_the_end,      // what lies as memory_layout() says is written from where it is
};

/// Writes and syncs files in `folder`, together with the other ranks that write them. The checksums
/// of the blocks that this rank wrote, in the order of its writes. Large pieces go to the disk past
/// the page cache, if it can, by a thread of their own, while the next ones are copied and summed;
/// that takes 24 MiB of memory. ResourceError.
TRIREME_API std::vector<uint64_t> write_step_files(const std::string& folder,
                                                   const WriteOrders& orders,
                                                   const BytesOfWrite& bytes_of,
                                                   BytesLast last = BytesLast::until_the_next);

/// Where a copy of the bytes of each write is best laid in memory that begins with a page: as the
/// file's pages lie. One more than there are writes: the last is the size of it all.
TRIREME_API std::vector<size_t> memory_layout(const WriteOrders& orders);

/// Writes and syncs the index, and the folder. ResourceError.
TRIREME_API void write_index(const std::string& folder, const CheckpointIndex& index);

}  // namespace trireme
