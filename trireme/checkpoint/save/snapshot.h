// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/step_files.h"

namespace trireme {

/// Shared memory without a name, of a sealed size, that is kept from one snapshot to the next: from
/// the second on its pages are there. One thread at a time.
class TRIREME_API SnapshotMemory {
 public:
  SnapshotMemory() = default;
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;

  /// At least so many bytes; what was there before may be lost. ResourceError, naming the size,
  /// when the machine does not have them.
  uint8_t* reserve(size_t bytes);
  size_t bytes() const { return bytes_; }
  /// The memory as a descriptor, to be handed to another process.
  int fd() const { return fd_.get(); }

 private:
  void release();
  UniqueFd fd_;
  uint8_t* begin_ = nullptr;
  size_t bytes_ = 0;
};

/// The bytes that a rank writes of a step, as they were at a step boundary. Lives as long as the
/// memory and until the next snapshot into it.
class TRIREME_API Snapshot {
 public:
  /// Of the i-th write of the orders.
  const void* operator[](size_t i) const { return begin_ + offsets_[i]; }
  size_t bytes() const { return bytes_; }

 private:
  friend TRIREME_API Snapshot take(const Collector&, const WriteOrders&, SnapshotMemory&);
  const uint8_t* begin_ = nullptr;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

/// Copies what the orders write of the state, on LibTorch's threads. Tensors may change as soon as
/// it returns.
TRIREME_API Snapshot take(const Collector& state, const WriteOrders& orders,
                          SnapshotMemory& memory);

}  // namespace trireme
