// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/reader.h"

namespace trireme {

struct WeightOptions {
  /// "old=new": parameters whose names begin with "old" in the checkpoint begin with "new" in the
  /// model; an empty "old" is a prefix of every name.
  std::vector<std::string> map = {};
  /// Patterns (* and ?) of parameters and buffers that may be absent from the checkpoint (they keep
  /// their values) or from the model (they are skipped).
  std::vector<std::string> except = {};
  TiedNames tied = {};  // as in LoadOptions
};

/// Loads the parameters and buffers visited by `walk` (state_of(model)) from a step or run folder,
/// or from Python files (LoadOptions::python_files), for example to fine-tune. Other state in the
/// checkpoint is ignored. Strict: missing or unexpected names not matched by `except` cause a
/// UsageError that lists up to five. Floating-point tensors of another dtype are converted. With a
/// group, every rank calls it.
TRIREME_API CheckpointInfo load_weights(const std::string& path, const StateWalk& walk,
                                        const Group& group = {}, const WeightOptions& options = {});

}  // namespace trireme
