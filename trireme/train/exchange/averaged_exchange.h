// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/train/exchange/gradient_sync_strategy.h"

namespace trireme {

/// The configuration's `averaging`: ranks step on their own gradients and average weights.
/// Checkpoints hold the mean of the weights under the model's names, which every reader sees, and
/// each rank's own weights and optimizer state beside it, from which the same ranks go on.
std::unique_ptr<GradientSyncStrategy> averaged_exchange(const Config& config, Group group);

}  // namespace trireme
