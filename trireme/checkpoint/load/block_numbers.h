// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/checkpoint/steps/index.h"

namespace trireme {

/// Numbers the blocks of a step through, in the order of names and parts (IndexPart::first_block).
void number_blocks(CheckpointIndex& index);

struct PartOfStep {
  const IndexTensor* tensor;
  const IndexPart* part;
};

/// Every part with blocks, in the order of their numbers.
std::vector<PartOfStep> parts_of(const CheckpointIndex& index);

}  // namespace trireme
