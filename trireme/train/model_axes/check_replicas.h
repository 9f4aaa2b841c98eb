// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/config/config.h"
#include "trireme/train/run.h"
#include "trireme/train/step_feature.h"

namespace trireme {

/// training.check_replicas: every so many steps, compares the parameters and buffers that ranks
/// should hold alike, by a hash of their bits: parts of divided layers too, where several ranks
/// have the same part (replicas, key/value heads that they share). Where two differ, throws
/// NumericError on all ranks, naming the first, the axis and the ranks. Null if it is 0. Reads
/// every parameter of the rank once, and sends 8 bytes and the name of each part. `run` has
/// gradients, and outlives it in content: the feature holds the tensors, not the run.
std::shared_ptr<StepFeature> check_replicas_feature(const Config& config, const Run& run);

}  // namespace trireme
