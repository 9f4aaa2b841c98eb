// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"
#include "trireme/tensor/tied_tensors.h"

// Loading a checkpoint in place.
namespace trireme {

class HeldStep;

struct CheckpointInfo {
  std::string folder;  // the step folder
  int64_t step = 0;
  int64_t world = 1;                  // of the run that saved it
  std::string layout = "replicated";  // how that run split its state, in words
  /// One sentence for each kind of state that could not be restored exactly on a different number
  /// of ranks.
  std::vector<std::string> notes = {};
};

struct LoadOptions {
  /// Only names with this prefix are considered: "model." loads a model without the rest of its
  /// training state.
  std::string prefix = {};
  /// Further names under which the checkpoint may hold what the walk visits once, under `first`.
  /// These are names of parameters; they also apply to optimizer state ("optim.exp_avg.<name>").
  TiedNames tied = {};
  /// The ranks that load together. Without a group, this process loads by itself.
  std::optional<Group> group = {};
  /// Without a group: the walk visits only a part of the state (that of one rank), so the
  /// checkpoint may hold more.
  bool partial = false;
  /// Tensors whose names begin with `from` in the checkpoint are loaded as if they began with `to`.
  /// UsageError if no name begins with `from`.
  struct Prefix {
    std::string from, to;
  };
  std::vector<Prefix> renamed = {};
  /// Patterns (* and ?) of tensors that may be absent from the checkpoint (they keep their values)
  /// or from the walk (they are skipped); they match names with or without "model.".
  std::vector<std::string> except = {};
  /// Floating-point tensors may have another dtype in the checkpoint: they are converted.
  bool convert = false;
  /// The run may train in another precision than the one that saved. Weights are converted as with
  /// `convert`. Weights whose dtype differs are taken from their float32 masters
  /// ("optim.master.<p>") if the checkpoint has them; missing masters are taken from the weights.
  /// The loss scale ("scaler.…") starts from its initial value.
  bool other_precision = false;
  /// The path may also be weights saved by other programs: a file of torch.save, a safetensors
  /// file, a folder of either, or one of torch.distributed.checkpoint. Their names get the prefix
  /// "model."; those of Hugging Face's GPT-2 are mapped if the walk visits blocks of a `gpt`. The
  /// walk then runs three times.
  bool python_files = false;
  /// Everything is read and compared with its checksums before anything is filled, so that a step
  /// that is found damaged leaves the state as it was: for who trains on with it though the load
  /// failed. Most bytes are then read twice, the second time from memory. Without it, blocks are
  /// read straight to where they belong and compared on the way, by one rank of each host. Python's
  /// files, which have no blocks, are always checked first. With a group it holds if any rank says
  /// so.
  bool check_first = false;
};

/// Loads the state visited by `walk` from a run folder (see find_checkpoint) or a step folder,
/// whatever the number of ranks, the ZeRO stage and the layout with which it was saved. Names,
/// shapes and dtypes must be the same on both sides, which is checked before anything is filled,
/// and the checksums of everything that is read must match, which is checked as it is read (or
/// before, with LoadOptions::check_first). In steps of format versions 1 and 2, a flat shape [n]
/// matches every shape of n elements. A tensor that the walk visits under several names (tied
/// weights) may be stored under one of them, or under several if they are equal there. The walk
/// runs twice. State that differs between ranks follows its rule (RankStateRule) if the number of
/// ranks has changed.
///
/// With a group, every rank calls it; rank 0 chooses the step; the ranks of a host have the disk
/// read only the blocks that they need, each block once (large ones past the page cache, where one
/// rank wants them or all do, which then broadcast them to each other during the walk: calls that
/// the walk itself makes must stand between the same tensors on all ranks); an error on one rank is
/// thrown on all, naming that rank; and anything in the checkpoint that no rank's walk visits is an
/// error. Apart from the state, it needs about 40 MiB of memory,
/// of which the index and what is planned from it take most where there are very many tensors: 52
/// MiB in all for 40,000 of them.
///
/// UsageError, naming the first difference: the state is not the one that was saved, or the format
/// is newer. Corrupt, naming the file: load the older checkpoint that the message names; it is
/// never loaded silently. ResourceError: the disk fails. If filling has begun, the state may be
/// part old and part new, and the message says so.
TRIREME_API CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                                     const LoadOptions& options = {});

/// The same from a step that is in memory alone (checkpoint/steps/snapshot/): what it would fill
/// from the step's folder. With a group, each rank has the snapshots of all ranks, in an object of
/// its own.
TRIREME_API CheckpointInfo load_snapshot(std::shared_ptr<HeldStep> step, const StateWalk& walk,
                                         const LoadOptions& options = {});

/// Reads every byte of a step folder, including the files of all ranks, and compares it with the
/// index. Corrupt, naming the file (and tensor) that does not match.
TRIREME_API CheckpointInfo verify_checkpoint(const std::string& folder);

}  // namespace trireme
