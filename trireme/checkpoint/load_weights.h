// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/reader.h"

namespace trireme {

struct WeightOptions {
  /// "old=new": parameters whose names begin with "old" in the checkpoint ("" is the beginning of
  /// all) begin with "new" in the model.
  std::vector<std::string> map = {};
  /// Patterns (* and ?) of parameters and buffers that may be missing there, and keep the values
  /// that they have, or that the model need not have.
  std::vector<std::string> except = {};
  TiedNames tied = {};
};

/// Fills the parameters and buffers that `walk` shows (state_of(model)) from a step or run folder,
/// whatever else that holds, or from Python's files (LoadOptions::python_files): where a training
/// begins from the weights of another. Strict: what is missing there, or left over, and is not
/// excepted is a UsageError that names up to five. Floats of another dtype are converted. With a
/// group every rank calls it.
TRIREME_API CheckpointInfo load_weights(const std::string& path, const StateWalk& walk,
                                        const Group& group = {}, const WeightOptions& options = {});

}  // namespace trireme
