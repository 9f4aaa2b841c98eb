// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/state.h"

// Saving a step of a run where every rank holds everything (DDP).
namespace trireme {

struct SaveOptions {
  int keep =
      2;  // checkpoints that stay, this one included; older ones are deleted after it is durable
  int rank = 0;
  int world = 1;
};

/// Writes what `walk` shows to <run_dir>/step-<step>/ and returns that path; ranks other than 0
/// return "" at once (the caller meets them at a barrier if it must). The files stay under a
/// temporary name until every byte is on disk; one rename publishes them; then `latest` is
/// replaced; then old checkpoints go. Killed at any point, the run folder holds this checkpoint or
/// the one before, whole. Temporaries of dead runs are removed first. A step saved again is
/// replaced.
///
/// Tensors are written from where they are (a device tensor passes through one CPU copy of itself).
/// "model.<p>" goes to model.safetensors as <p>, so that stock tools read it; everything else to
/// state.safetensors; values into the index.
///
/// UsageError: a name twice, a dtype that files do not hold, a part of a tensor
/// (checkpoint/sharded_writer.h saves those). ResourceError: the disk is full or fails, or another
/// process is saving here; nothing of the step is visible then, older checkpoints are kept.
TRIREME_API std::string save_step(const std::string& run_dir, int64_t step, const StateWalk& walk,
                                  const SaveOptions& options = {});

}  // namespace trireme
