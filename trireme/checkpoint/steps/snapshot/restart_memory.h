// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/snapshot/kept_snapshots.h"

namespace trireme {

/// What the launcher of a job on one host holds of steps from the end of one attempt until the
/// workers of the next have whole snapshots of their own, and their way to the disk. One thread at
/// a time.
class TRIREME_API RestartMemory final : public KeptSnapshots {
 public:
  RestartMemory() = default;
  /// As write().
  ~RestartMemory() override;
  RestartMemory(const RestartMemory&) = delete;

  /// Workers are dead, of which one did not end well. What they left is held in place of what was
  /// before, where all of a step is there; it is sealed. Where others may follow their generation
  /// (`fence`) it is written at once: once these have begun it is too late.
  void take(std::vector<HandedSnapshot> handed, const GenerationFence& fence = {}) override;
  void see(const SnapshotHolder& holder) override {
    ranks_have_snapshots(holder.ranks_that_let_go());
  }

  /// Brings what is held to the disk, if it is not there; says what became of it, in the log.
  void write();
  /// The workers start again: the text for their environment (handed_on.h) and the memory of the
  /// newest step, if they take it from there. Its way to the disk begins now, and goes on beside
  /// them. "": they take it from the disk, where it is then.
  std::string hand_on();

  bool has_whole_steps() const override { return true; }
  /// The same for workers that live and ask for it; empty: they take it from the disk.
  std::vector<const HandedSnapshot*> offer() override;

  /// So many ranks have a whole snapshot of this attempt: of all of them nothing older is needed.
  void ranks_have_snapshots(size_t ranks);
  void nothing_older_is_needed() override;
  size_t held() const { return handed_.size(); }  // memories

 private:
  void finish();
  std::vector<const HandedSnapshot*> the_newest() const;

  std::vector<HandedSnapshot> handed_;
  GenerationFence fence_;    // of the workers that left them
  std::vector<int> newest_;  // descriptors of handed_ that are handed on
  size_t world_ = 0;         // ranks of that step
  bool written_ = true;
  std::atomic<bool> writing_ = false;
  std::thread writer_;
};

}  // namespace trireme
