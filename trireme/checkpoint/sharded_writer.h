// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

// Saving a step by all ranks of a group, whatever part of the state each of them holds.
namespace trireme {

struct ShardedSaveOptions {
  /// How state is split, in words, for people: "zero stage 3, dp_shard 2, dp_replicate 1".
  /// Printable ASCII, at most 200.
  std::string layout = "own loop";
  int keep = 2;  // checkpoints that stay, this one included, as in SaveOptions
};

/// Writes what the ranks' walks show to <run_dir>/step-<step>/, and returns that path on every
/// rank when it is there, whole and durable. As save_step in everything that is not said here:
/// one rename publishes it, `latest`, keep, a step saved again, temporaries of dead runs.
///
/// Every rank of `group` calls it, with the same step and options; `run_dir` is one folder for all,
/// on every host. Rank 0 asks what each holds and decides who writes; each rank writes its files
/// and syncs them; rank 0 writes the index and publishes. The calls wait for the slowest disk, up
/// to the group's timeout.
///
/// A rank shows boxes of a tensor or flat ranges of them (base/slice.h), several of one name if it
/// likes; the ranks' parts of a name are disjoint or the same, and together all of it. What several
/// ranks show alike they share in writing, so it must be equal on them
/// (StateVisitor::copy_of_rank_0 is for what may differ): what all ranks show goes into
/// model.safetensors and state.safetensors, the rest into the files of the first rank that shows it
/// (docs/checkpoint_format.md). A rank that does not see the folder leaves its bytes to the others.
/// An empty part counts as not shown. A value may be shown by some ranks only; those that show it
/// agree on it.
///
/// An error is one error on all ranks, naming the rank that met it first and its path; nothing of
/// the step is visible then, older checkpoints are kept, the group goes on (but for the errors of
/// the group itself: a rank that dies is PeerLost for the others). UsageError: a name twice on a
/// rank, a dtype that files do not hold, parts that overlap or leave a hole, ranks that disagree.
/// ResourceError: a disk is full or fails, another process is saving here, a host that does not
/// see the folder.
TRIREME_API std::string save_sharded_step(const std::string& run_dir, int64_t step,
                                          const StateWalk& walk, Group group,
                                          const ShardedSaveOptions& options);

}  // namespace trireme
