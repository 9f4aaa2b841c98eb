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

/// Saves steps while training goes on: save() copies what this rank writes into shared memory and
/// returns; a thread of this rank writes the files, and rank 0's publishes the step when all ranks'
/// are on disk. That thread uses no group: ranks leave what they have written beside the files.
///
///   AsyncSaver saver("run", group);
///   … saver.save(step, walk);   // every rank; waits for the copy alone
///   saver.wait();               // every rank, before the program ends
///
/// What lies in a file (offloaded state) is not copied into memory: save() waits until it has gone
/// from that file to the step's.
///
/// The files, and what becomes of a step that fails, are as for save_sharded_step. As long as the
/// ranks hold the same tensors (names, dtypes, slices), who writes what is decided once. One thread
/// at a time.
class TRIREME_API AsyncSaver {
 public:
  AsyncSaver(std::string run_dir, Group group);
  /// Waits for this rank's files, and on rank 0 for at most the group's timeout until the step is
  /// published, or for a second where ranks are lost; errors go to the log.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;

  /// What rank 0 does when a step is published, on its saver's thread and before wait() returns:
  /// deleting other steps, say. What it throws goes to the log.
  using Published = std::function<void()>;
  /// Every rank calls it. Waits for the save under way, if there is one, and throws its error on
  /// all ranks; nothing of the new one has begun then. Its own errors until the copy is made are
  /// thrown on all ranks, too.
  void save(int64_t step, const StateWalk& walk, const ShardedSaveOptions& options = {},
            Published published = {});
  /// Every rank calls it. Waits until the step is published and returns its folder; "" if none is
  /// under way. Throws its error, naming the rank, on all ranks; after that none is under way.
  std::string wait();
  /// Whether this rank's thread is at work.
  bool busy() const;
  /// Whether this rank knows that wait() would wait no more: on rank 0 that the step is published
  /// or has failed, on others that it has failed there. Asks nobody; false if none is under way.
  bool ended() const;
  /// A call into the group threw that it has ended (PeerLost, Timeout, Aborted, Mismatch): files of
  /// ranks that are lost will not come. The step is published if all are there or nearly so. Only
  /// the destructor may follow.
  void ranks_are_lost();
  /// Bytes of this rank's two buffers, which are used in turn.
  int64_t memory_bytes() const;
  /// How often the ranks have decided who writes what.
  int64_t plans() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
