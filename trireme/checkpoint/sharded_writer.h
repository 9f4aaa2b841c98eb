// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

// Saving a step by all ranks of a group, each of which may hold any part of the state.
namespace trireme {

struct ShardedSaveOptions {
  /// How the state is split, in words for people: "zero stage 3, dp_shard 2, dp_replicate 1". At
  /// most 200 characters of printable ASCII.
  std::string layout = "own loop";
  int keep = 2;  // as in SaveOptions
  /// For AsyncSaver: this program, when its launcher starts it again, loads the step that the
  /// launcher hands on in memory (checkpoint/steps/snapshot/handed_on.h), so that it need not be on
  /// the disk by then.
  bool resumes_from_memory = false;
};

/// Writes the state visited by the ranks' walks to <run_dir>/step-<step>/, and returns that path on
/// every rank when the step is complete and durable. Publication by one rename, `latest`, `keep`,
/// saving a step again and temporaries of dead runs are as for save_step.
///
/// Every rank of `group` calls it, with the same step and options; `run_dir` is one folder for all
/// of them, on every host. Rank 0 collects what each rank holds and decides who writes what; each
/// rank writes and syncs its files; rank 0 writes the index and publishes. The call waits for the
/// slowest disk, up to the group's timeout.
///
/// A rank visits boxes of a tensor or flat ranges of them (base/slice.h), possibly several under
/// one name; the ranks' parts of a name are disjoint or identical, and together they cover the
/// tensor. Ranks that visit the same part share the work of writing it, so it must be equal on them
/// (StateVisitor::copy_of_rank_0 is for copies that may differ). What all ranks visit goes to
/// model.safetensors and state.safetensors, the rest to the files of the first rank that visits it
/// (docs/checkpoint_format.md). If a rank does not see the folder, other ranks that hold the same
/// parts write them. An empty part counts as not visited. A value may be visited by some ranks
/// only; they must agree on it.
///
/// Any error is thrown on all ranks, naming the rank that met it first and its path. Nothing of the
/// step is visible then, older checkpoints are kept, and the group can still be used, except after
/// an error of the group itself (if a rank dies, the others get PeerLost). UsageError: a name
/// visited twice on a rank, a dtype that the files cannot hold, parts that overlap or leave a gap,
/// ranks that disagree. ResourceError: a disk is full or fails, somebody else is saving here, or
/// a host does not see the folder.
TRIREME_API std::string save_sharded_step(const std::string& run_dir, int64_t step,
                                          const StateWalk& walk, Group group,
                                          const ShardedSaveOptions& options);

}  // namespace trireme
