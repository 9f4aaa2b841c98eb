// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/state.h"

// Saving a step of a run where every rank holds everything (DDP).
namespace trireme {

struct SaveOptions {
  /// How many checkpoints to keep, this one included; older ones are deleted once it is durable.
  int keep = 2;
  int rank = 0;
  int world = 1;
};

/// Writes the state visited by `walk` to <run_dir>/step-<step>/ and returns that path; ranks other
/// than 0 return "" at once (the caller adds a barrier if it needs one). Files stay under a
/// temporary name until every byte is on disk; one rename publishes them; then `latest` is
/// replaced, and then old checkpoints are deleted. If the process is killed at any point, the run
/// folder holds either this checkpoint or the one before, complete. Temporaries of dead runs are
/// removed first. Saving a step again replaces it.
///
/// Tensors are written from where they are (a device tensor passes through one CPU copy of itself).
/// "model.<p>" goes to model.safetensors as <p>, so that standard tools can read it; other tensors
/// go to state.safetensors, and values to the index.
///
/// UsageError: a name visited twice, a dtype that the files cannot hold, or a part of a tensor
/// (checkpoint/sharded_writer.h saves parts). ResourceError: the disk is full or fails, or another
/// process is saving here; nothing of the step is visible then, and older checkpoints are kept.
TRIREME_API std::string save_step(const std::string& run_dir, int64_t step, const StateWalk& walk,
                                  const SaveOptions& options = {});

}  // namespace trireme
