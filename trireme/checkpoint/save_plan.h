// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/index.h"

// Who writes what of a step. Pure: what every rank holds → every rank's files, and the index but
// for the checksums.
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
  CheckpointIndex index;  // its tensors and values
  /// files[rank][i]: where that rank writes its i-th tensor; "" where another rank does.
  std::vector<std::vector<std::string>> files;
};

/// UsageError, naming tensor or value and ranks, where they disagree in shape, dtype or value, or
/// where parts overlap or leave a hole. A rank names a tensor once.
SavePlan plan_save(const std::vector<HeldState>& ranks);

}  // namespace trireme
