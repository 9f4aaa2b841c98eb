// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/snapshot/snapshot_format.h"

namespace trireme {

/// The memory of one rank's snapshot, complete, mapped for reading. Threads may read together.
class TRIREME_API HeldSnapshot {
 public:
  /// Null: there is none, or it was being made. Corrupt, saying what is wrong: it is no such
  /// memory, or does not hold together; UsageError for a newer version; ResourceError.
  static std::unique_ptr<const HeldSnapshot> open(int fd);
  ~HeldSnapshot();
  HeldSnapshot(const HeldSnapshot&) = delete;

  const SnapshotPlan& plan() const { return parsed_.plan; }
  const SnapshotNote& note() const { return parsed_.note; }
  /// The bytes of the writes; each lies within.
  const uint8_t* data() const { return begin_ + parsed_.layout.data_at; }
  /// Of the i-th block of the writes; 0: not known.
  uint64_t checksum(size_t i) const;

 private:
  HeldSnapshot(const uint8_t* begin, size_t size) : begin_(begin), size_(size) {}
  const uint8_t* begin_;
  size_t size_;
  ParsedSnapshot parsed_;
};

}  // namespace trireme
