// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/checkpoint/reader.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/run.h"

// Saves and loads a run's step folder, whatever part of the state this rank holds. Every rank must
// call these functions.
namespace trireme {

/// Saves the run and returns the folder of the step.
std::string save_run(Run& run, const std::string& folder, int keep);
/// Loads a run. `tied`: other names of the weights, under which an older version may have saved
/// them.
CheckpointInfo load_run(Run& run, const std::string& path, const TiedNames& tied = {});

}  // namespace trireme
