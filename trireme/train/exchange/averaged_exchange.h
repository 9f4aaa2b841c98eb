// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/train/exchange/gradient_sync_strategy.h"

namespace trireme {

/// Implements the section `averaging`: ranks step on their own gradients and average weights. A
/// checkpoint holds the mean of the weights under the model's names, which every reader sees, and
/// also each rank's own weights and optimizer state, from which the same number of ranks resumes.
std::unique_ptr<GradientSyncStrategy> averaged_exchange(const Config& config, Group group);

}  // namespace trireme
