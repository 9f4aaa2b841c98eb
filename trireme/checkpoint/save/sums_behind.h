// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

#include "trireme/checkpoint/save/snapshot.h"

namespace trireme {

/// Leaves the checksums of a snapshot that nobody writes, by a thread, so that whoever reads it
/// when this process is dead can tell whether it has changed since. One thread at a time.
class SumsBehind {
 public:
  SumsBehind() = default;
  ~SumsBehind() { end(); }
  SumsBehind(const SumsBehind&) = delete;

  /// Reads the snapshot until end(): before it, its memory must not change.
  void begin(const Snapshot& snapshot, const WriteOrders& orders);
  /// They are there, or will not be.
  void end();

 private:
  std::atomic<bool> cancelled_ = false;
  std::thread thread_;
};

}  // namespace trireme
