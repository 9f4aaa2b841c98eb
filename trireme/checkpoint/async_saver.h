// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// Saves steps while training continues. save() copies what this rank writes into shared memory and
/// returns; a thread of this rank then writes the files, and rank 0's thread publishes the step
/// when all ranks' files are on disk. These threads do not use the group: each rank leaves a record
/// of what it has written next to its files.
///
///   AsyncSaver saver("run", group);
///   … saver.save(step, walk);   // every rank; waits only for the copy
///   saver.wait();               // every rank, before the program ends
///
/// Offloaded state is not copied into memory; save() waits until it has been copied from its file
/// into the step's.
///
/// The files are those of save_sharded_step, and failure handling is as for save_sharded_step. The
/// write plan is computed once and reused while the ranks' tensors (names, dtypes, slices) stay the
/// same. One thread at a time.
class TRIREME_API AsyncSaver {
 public:
  AsyncSaver(std::string run_dir, Group group);
  /// Waits for this rank's files and, on rank 0, for at most the group's timeout until the step is
  /// published; if ranks are lost, waits for about a second. Errors are logged.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;

  /// Called on rank 0 when a step is published, on the saver's thread and before wait() returns;
  /// for example to delete other steps. Its exceptions are logged.
  using Published = std::function<void()>;
  /// Every rank calls it. First waits for the save in progress, if there is one, and throws its
  /// error on all ranks; the new save has not begun then. Errors of the new save before its copy is
  /// complete are thrown on all ranks, too.
  void save(int64_t step, const StateWalk& walk, const ShardedSaveOptions& options = {},
            Published published = {});
  /// Every rank calls it. Copies the state into memory and writes nothing: a step for a launcher
  /// that starts ranks again, or writes it when they have died (checkpoint/steps/snapshot/). It
  /// does not wait for the save in progress, whose copy stays as it is, and takes the place of the
  /// last one that was made so. Errors are thrown on all ranks; UsageError also if no launcher
  /// holds snapshots of this process, or if state lies in files.
  void hold(int64_t step, const StateWalk& walk, const ShardedSaveOptions& options = {});
  bool is_held() const;  // a launcher holds snapshots of this process
  /// Every rank calls it. Waits until the step is published and returns its folder, or "" if no
  /// save is in progress. If the save failed, throws its error, naming the rank, on all ranks; no
  /// save is in progress afterwards.
  std::string wait();
  /// Whether this rank's thread is working on a save.
  bool busy() const;
  /// Whether, as far as this rank knows, wait() would return at once: on rank 0, the step is
  /// published or has failed; on other ranks, their own writing has failed. Does not communicate;
  /// false if no save is in progress.
  bool ended() const;
  /// Call this after the group has failed (a call into it threw PeerLost, Timeout, Aborted or
  /// Mismatch). Files from lost ranks will not arrive; the step is published only if the files of
  /// all ranks are complete within about a second of the destructor's call. Only the destructor may
  /// be called afterwards.
  void ranks_are_lost();
  /// The bytes of this rank's two buffers, which are used alternately.
  int64_t memory_bytes() const;
  /// The number of times that the write plan has been computed.
  int64_t plans() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
