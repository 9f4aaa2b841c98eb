// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/part_source.h"
#include "trireme/checkpoint/steps/snapshot/held_snapshot.h"

namespace trireme {

/// A step whose ranks' snapshots are all in memory: what its folder would hold.
class TRIREME_API HeldStep {
 public:
  /// The snapshots of one save, by rank, of all its ranks. Corrupt, naming the step and what does
  /// not fit together.
  explicit HeldStep(std::vector<std::unique_ptr<const HeldSnapshot>> ranks);

  const SnapshotNote& note() const { return ranks_[0]->note(); }
  /// "the snapshot of step 40 for /runs/a", for messages.
  const std::string& name() const { return name_; }
  /// With the checksums of all blocks once sum_blocks() was called, else with those that the ranks
  /// have left.
  const CheckpointIndex& index() const { return index_; }
  /// Computes the checksums that are missing: reads those bytes.
  void sum_blocks();
  /// Compares blocks with the checksums that their ranks have left, where they are known: of about
  /// as many bytes each, the `share`-th of so many shares. Corrupt, naming the file and the bytes.
  void verify(size_t share, size_t shares) const;

  /// One of the index's files. It reads from the memory as long as this object lives.
  std::unique_ptr<PartSource> open(const std::string& file) const;

  /// Writes the files into a folder that is empty, and the index: a step that is to be published.
  /// Corrupt where bytes do not have the checksum that their rank has left; ResourceError.
  void write(const std::string& folder);
  uint64_t bytes() const;  // of the files
  /// Gives the memory back: nothing may be asked any more.
  void let_go();

 private:
  /// Neighbouring bytes of a file, in a rank's memory.
  struct Stretch {
    uint64_t at, size;
    const uint8_t* bytes;
    uint64_t* checksums;  // of its blocks, in the index
  };
  struct File {
    std::string head;
    std::vector<Stretch> stretches;  // sorted; together all behind the head
  };
  class Reader;
  void take_index();
  void take_files();
  void place_writes();

  std::vector<std::unique_ptr<const HeldSnapshot>> ranks_;
  std::string name_;
  CheckpointIndex index_;
  std::map<std::string, File> files_;
};

}  // namespace trireme
