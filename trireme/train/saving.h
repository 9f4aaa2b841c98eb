// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/checkpoint/reader.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/run.h"

// A run to and from a step folder, whatever of it this rank holds. Every rank calls them.
namespace trireme {

/// Gives the folder of the step.
std::string save_run(Run& run, const std::string& folder, int keep);
/// `tied`: other names of the weights, under which an older version may have saved them as well.
CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied = {});

}  // namespace trireme
