// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"

namespace trireme::pipeline {

/// Times of one stage for one micro-batch, in any one unit.
struct StageCost {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
};

struct Costs {
  std::vector<StageCost> stages{{}};  // one a stage, or one for all of them
  double transfer = 0;                // from the end of a send to the end of its receive
};

/// Throws UsageError where a time is negative or not finite, all times of a stage are 0, or there
/// are costs of neither one nor `stages` stages.
TRIREME_API void check_costs(int stages, const Costs& costs);

}  // namespace trireme::pipeline
