// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/config/config.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/build/zero_setup.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/run.h"

namespace trireme {

/// Adds to a run with a model and weights everything that a step needs: gradients, compute, loss
/// scaling, optimizer and schedule. `step_weight` is the number of samples or tokens per step, over
/// which losses are sums.
void complete_run(Run& run, const Config& config, ZeroSetup& zero, const PrecisionPlan& precision,
                  int64_t step_weight, const TiedNames& tied = {});

/// The configured optimizer, of whole parameters that all have its options.
std::unique_ptr<Optimizer> plain_optimizer(const Config& config, const NamedTensors& parameters);

}  // namespace trireme
