// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/state.h"

// Loading a checkpoint in place.
namespace trireme {

struct CheckpointInfo {
  std::string folder;  // the step folder
  int64_t step = 0;
  int64_t world = 1;  // of the run that saved it
};

struct LoadOptions {
  /// Only names that begin so are looked at: "model." loads a model without the state of its
  /// training.
  std::string prefix = {};
};

/// Fills what `walk` shows from a run folder (see find_checkpoint) or a step folder. Nothing is
/// written before everything has been checked: names, shapes and dtypes must be the same on both
/// sides, and every checksum must fit. The walk is made twice. Each rank loads by itself.
///
/// UsageError, naming the first difference: the state is not the one that was saved; or a newer
/// format. Corrupt, naming the file: take the older checkpoint that the message names; it is never
/// taken silently.
TRIREME_API CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                                     const LoadOptions& options = {});

/// Reads every byte of a step folder against its index. Corrupt, naming the file (and tensor) that
/// does not fit.
TRIREME_API CheckpointInfo verify_checkpoint(const std::string& folder);

}  // namespace trireme
