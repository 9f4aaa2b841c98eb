// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/config/config.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/build/zero_setup.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/run.h"

namespace trireme {

/// Configuration → everything of a run that steps, around a model and weights that are there:
/// gradients, compute, loss scaling, optimizer, schedule. `step_weight`: samples or tokens of a
/// step, over which losses are sums.
void complete_run(Run& run, const Config& config, ZeroSetup& zero, const PrecisionPlan& precision,
                  int64_t step_weight, const TiedNames& tied = {});

}  // namespace trireme
