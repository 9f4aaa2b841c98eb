// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/state.h"
#include "trireme/tensor/tied_tensors.h"

// Loading a checkpoint in place.
namespace trireme {

struct CheckpointInfo {
  std::string folder;  // the step folder
  int64_t step = 0;
  int64_t world = 1;                  // of the run that saved it
  std::string layout = "replicated";  // … and how its state was split
};

struct LoadOptions {
  /// Only names that begin so are looked at: "model." loads a model without the state of its
  /// training.
  std::string prefix = {};
  /// How the state that is filled is split over ranks, as given to save_sharded_step. "replicated":
  /// the walk shows all of it.
  std::string layout = "replicated";
  int rank = 0;  // of this process in that layout
  /// Names under which the checkpoint may have what the walk shows once, under `first`: of
  /// parameters, so that state of optimizers is found as well ("optim.exp_avg.<name>").
  TiedNames tied = {};
};

/// Fills what `walk` shows from a run folder (see find_checkpoint) or a step folder. Nothing is
/// written before everything has been checked: names, shapes and dtypes must be the same on both
/// sides, and the checksum of all that is read must fit. A tensor that the walk shows under several
/// names (tied weights) may lie there under one of them, or under several if they are equal there.
/// The walk is made twice. Each rank loads by
/// itself, with `path` on a file system that it sees, and reads only the files that it needs.
///
/// Another layout: weights ("model.…") fit any. A whole one is put together from its parts, a part
/// is cut out of what was saved, and a flat shape [n] fits every shape of n elements. All other
/// state, and so a load whose prefix is not "model." or longer, wants the layout it was saved with.
/// Where every rank shows a part only, it is not noticed that the checkpoint has weights that no
/// rank shows, unless its layout is the same.
///
/// UsageError, naming the first difference: the state is not the one that was saved; or it has
/// another layout (both are named); or a newer format. Corrupt, naming the file: take the older
/// checkpoint that the message names; it is never taken silently.
TRIREME_API CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                                     const LoadOptions& options = {});

/// Reads every byte of a step folder, of all ranks' files, against its index. Corrupt, naming the
/// file (and tensor) that does not fit.
TRIREME_API CheckpointInfo verify_checkpoint(const std::string& folder);

}  // namespace trireme
