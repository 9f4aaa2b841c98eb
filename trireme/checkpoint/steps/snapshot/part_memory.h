// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "trireme/checkpoint/steps/snapshot/kept_snapshots.h"
#include "trireme/checkpoint/steps/snapshot/spread_step.h"

namespace trireme {

/// What a launcher of several holds of steps from the end of one attempt until the workers of the
/// next have snapshots of their own: the parts of the ranks that were on its host, and copies of
/// others'. One thread at a time.
class TRIREME_API PartMemory final : public KeptSnapshots {
 public:
  PartMemory() = default;
  /// A step that is whole here and not on the disk is written.
  ~PartMemory() override;
  PartMemory(const PartMemory&) = delete;

  /// What ranks left that take a step from memory is kept, sealed; the rest goes to the disk, if it
  /// is all of a step.
  void take(std::vector<HandedSnapshot> handed, const GenerationFence& fence) override;
  /// Copies of what ranks of other hosts had; sealed, of the attempt whose workers' were taken.
  void take_copies(std::vector<HandedSnapshot> copies);
  /// A rank that begins its second snapshot shows that all ranks have their first.
  void see(const SnapshotHolder& holder) override;

  /// Of this host; the address and the room are somebody else's to know.
  HostParts report() const;
  /// The memory of a part of that save; -1: it is not here.
  int part(const std::string& save, int64_t rank) const;

  /// All hosts agreed that the workers of this attempt take that step: the text for their
  /// environment (handed_on.h). `fetched`: the parts that are not here, which go again when the
  /// workers have them.
  std::string hand_on(const SpreadStep& step, std::vector<HandedSnapshot> fetched, int attempt);
  /// … that they take none.
  void hand_on_nothing(int attempt);
  /// The step that was handed on goes to the disk, if it is not there, beside the workers.
  void write_behind(const GenerationFence& fence);
  size_t held() const { return parts_.size() + fetched_.size(); }  // memories

 private:
  struct Part {
    SnapshotNote note;  // without the values
    uint64_t bytes = 0;
    HandedSnapshot memory;
  };
  void add(std::vector<HandedSnapshot> handed, std::vector<HandedSnapshot>* rest);
  bool has(const SnapshotNote& note) const;

  std::vector<Part> parts_;
  std::vector<HandedSnapshot> fetched_;
  std::string handed_on_;  // the save that the workers took; "": none
  int attempt_ = -1;       // see HostParts
  GenerationFence fence_;  // of the workers whose parts they are
  std::thread writer_;
};

}  // namespace trireme
