// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/step_writer.h"

// Who writes what of a step. Pure: what every rank holds → the files, each rank's writes, and the
// index but for the checksums.
namespace trireme {

/// What one rank's walk shows.
struct HeldTensor {
  Slice slice;
  std::string dtype;  // as in files
};
struct HeldState {
  std::vector<HeldTensor> tensors;
  std::map<std::string, IndexValue> values;
};

struct SavePlan {
  CheckpointIndex index;  // blocks are as many as there will be, and 0; files have no entry
  std::vector<PlannedFile> files;
  std::vector<std::vector<PlannedWrite>> writes;  // by rank, in the order of files and bytes

  /// Where the checksums of a rank's writes belong, in their order.
  struct Blocks {
    IndexPart* part;
    size_t first, count;
  };
  std::vector<std::vector<Blocks>> blocks;

  SavePlan() = default;
  SavePlan(SavePlan&&) = default;
  SavePlan& operator=(SavePlan&&) = default;
  int64_t bytes_of(size_t rank) const;
};

/// Ranks that hold a box alike share its bytes so that each of them writes about as much; a box is
/// divided between blocks. `sees[r]` false: rank r does not see the folder, so others write what
/// it holds. UsageError, naming tensor or value and ranks, where they disagree in shape, dtype or
/// value, where parts overlap or leave a hole, or where no rank that sees the folder holds a part.
SavePlan plan_save(const std::vector<HeldState>& ranks, const std::vector<bool>& sees = {});

/// The values of the ranks, each once: those of plan_save's index. UsageError, naming the value and
/// two ranks, where they disagree.
std::map<std::string, IndexValue> agreed_values(const std::vector<HeldState>& ranks);

}  // namespace trireme
