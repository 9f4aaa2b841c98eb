// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/step_files.h"
#include "trireme/checkpoint/steps/snapshot/snapshot_format.h"

namespace trireme {

/// Shared memory without a name, of a sealed size, that is kept from one snapshot to the next: from
/// the second on its pages are there. One thread at a time.
class TRIREME_API SnapshotMemory {
 public:
  SnapshotMemory() = default;
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;

  /// At least so many bytes. Where there are fewer, what was there is given up first (`gives_up`,
  /// if it is set, is called before). ResourceError, naming the size, when the machine does not
  /// have them.
  uint8_t* reserve(size_t bytes, const std::function<void()>& gives_up = {});
  size_t bytes() const { return bytes_; }
  /// The memory as a descriptor, to be handed to another process.
  int fd() const { return fd_.get(); }

 private:
  friend class Snapshot;
  void release();
  UniqueFd fd_;
  uint8_t* begin_ = nullptr;
  size_t bytes_ = 0;
  uint64_t plan_ = 0;  // the checksum of the plan that it holds
};

/// The bytes that a rank writes of a step, as they were at a step boundary. Lives as long as the
/// memory and until the next snapshot into it. The memory says of itself what it holds, so that
/// another process can make the step of it (checkpoint/steps/snapshot/).
class TRIREME_API Snapshot {
 public:
  /// Of the i-th write of the orders.
  const void* operator[](size_t i) const { return data_ + offsets_[i]; }
  size_t bytes() const { return bytes_; }  // of the memory that it needs
  /// Leaves the checksums of its blocks, in the order of the writes, for whoever reads it later.
  void put_checksums(const std::vector<uint64_t>& checksums) const;

  /// Copies what the orders write of the state, on LibTorch's threads. Tensors may change as soon
  /// as it returns. `state` is what the walk showed from which ranks agreed on these orders
  /// (StepSave): a walk of its own here could show something else. `label` is of the orders.
  /// ResourceError.
  static Snapshot take(const Collector& state, const WriteOrders& orders,
                       const SnapshotLabel& label, SnapshotMemory& memory);

 private:
  uint8_t* begin_ = nullptr;
  const uint8_t* data_ = nullptr;
  SnapshotLayout layout_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

}  // namespace trireme
