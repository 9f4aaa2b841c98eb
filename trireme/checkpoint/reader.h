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
  int64_t world = 1;                    // of the run that saved it
  std::string layout = "replicated";    // … and how its state was split, in words
  std::vector<std::string> notes = {};  // a sentence for each kind of state that another number of
                                        // ranks could not take over as it was
};

struct LoadOptions {
  /// Only names that begin so are looked at: "model." loads a model without the state of its
  /// training.
  std::string prefix = {};
  /// Names under which the checkpoint may have what the walk shows once, under `first`: of
  /// parameters, so that state of optimizers is found as well ("optim.exp_avg.<name>").
  TiedNames tied = {};
  /// The ranks that load together. Without it this process loads by itself.
  std::optional<Group> group = {};
  /// Without a group: the walk shows only a part of the state (one rank's), so the checkpoint may
  /// hold more than it knows.
  bool partial = false;
  /// Tensors whose names begin with `from` in the checkpoint are taken for ones that begin with
  /// `to`. UsageError for one that no name begins with.
  struct Prefix {
    std::string from, to;
  };
  std::vector<Prefix> renamed = {};
  /// Patterns (* and ?) of tensors that the checkpoint may lack, which stay as they are, or have
  /// besides; they match names with or without "model.".
  std::vector<std::string> except = {};
  /// Floating-point tensors may have another dtype there: they are converted.
  bool convert = false;
  /// The run may train in another precision than the one that saved: as `convert`; weights whose
  /// dtype differs are taken from their float32 masters ("optim.master.<p>") where those are there,
  /// masters that are missing from the weights; a loss scale ("scaler.…") begins anew.
  bool other_precision = false;
  /// The path may be weights that others saved: a file of torch.save, safetensors, a folder of
  /// either or of torch.distributed.checkpoint. Their names begin with "model." here; those of
  /// Hugging Face's GPT-2 are mapped if the walk shows blocks of a `gpt`. The walk is made thrice.
  bool python_files = false;
};

/// Fills what `walk` shows from a run folder (see find_checkpoint) or a step folder, whatever the
/// number of ranks, the ZeRO stage and the layout with which it was saved. Nothing is written
/// before everything has been checked: names, shapes and dtypes must be the same on both sides, and
/// the checksums of all that is read must fit. In steps of versions 1 and 2 a flat shape [n] fits
/// every shape of n elements. A tensor that the walk shows under several names (tied weights) may
/// lie there under one of them, or under several if they are equal there. The walk is made twice.
/// State that each rank has for itself follows its rule (RankStateRule) when there are other ranks.
///
/// With a group every rank calls it; rank 0 chooses the step; the ranks of a host read only the
/// blocks that they need, each block once; an error of one rank is thrown by all, naming it, and
/// what no rank's walk knows is an error. Beside the state it takes some 40 MiB of memory, and the
/// index.
///
/// ResourceError: the disk fails; where that was while bytes were copied, the state is part old and
/// part new. UsageError, naming the first difference: the state is not the one that was saved, or a
/// newer format. Corrupt, naming the file: take the older checkpoint that the message names; it is
/// never taken silently.
TRIREME_API CheckpointInfo load_step(const std::string& path, const StateWalk& walk,
                                     const LoadOptions& options = {});

/// The same from a step that is in memory alone (checkpoint/steps/snapshot/): what it would fill
/// from the step's folder. With a group, each rank has the
/// snapshots of all ranks, in an object of its own.
TRIREME_API CheckpointInfo load_snapshot(std::shared_ptr<HeldStep> step, const StateWalk& walk,
                                         const LoadOptions& options = {});

/// Reads every byte of a step folder, of all ranks' files, against its index. Corrupt, naming the
/// file (and tensor) that does not fit.
TRIREME_API CheckpointInfo verify_checkpoint(const std::string& folder);

}  // namespace trireme
