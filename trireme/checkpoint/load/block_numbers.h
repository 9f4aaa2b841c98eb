// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/checkpoint/steps/index.h"

namespace trireme {

struct PartOfStep {
  const IndexTensor* tensor;
  const IndexPart* part;
  int64_t first;  // the number of its first block
};

/// Every part with blocks, in the order of names, in which the blocks of a step are numbered.
std::vector<PartOfStep> parts_of(const CheckpointIndex& index);

}  // namespace trireme
