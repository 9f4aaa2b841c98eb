// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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
/// The files, and what becomes of a step that fails, are as for save_sharded_step. One thread at a
/// time.
class TRIREME_API AsyncSaver {
 public:
  AsyncSaver(std::string run_dir, Group group);
  /// Waits for this rank's files, and on rank 0 for at most the group's timeout until the step is
  /// published; errors go to the log.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;

  /// Every rank calls it. Waits for the save under way, if there is one, and throws its error on
  /// all ranks; nothing of the new one has begun then.
  void save(int64_t step, const StateWalk& walk, const ShardedSaveOptions& options = {});
  /// Every rank calls it. Waits until the step is published and returns its folder; "" if none is
  /// under way. Throws its error, naming the rank, on all ranks; after that none is under way.
  std::string wait();
  /// Whether this rank's thread is at work.
  bool busy() const;
  /// Bytes of this rank's two buffers, which are used in turn.
  int64_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
