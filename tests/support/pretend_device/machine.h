// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/pretend_device/device_memory.h"
#include "tests/support/pretend_device/mapping.h"
#include "tests/support/pretend_device/pinned_memory.h"
#include "tests/support/pretend_device/queue.h"

namespace trireme::pretend {

constexpr int kPoolStreams = 8;  // of each device, beside its default stream 0

/// The pretend devices of this process, of which LibTorch has one set: it is never destroyed, since
/// tensors and threads may outlive every static object.
class Machine {
 public:
  static Machine& of_process();

  Mapping& mapping() { return mapping_; }
  DeviceMemory& memory(int device) { return *memory_[static_cast<size_t>(device)]; }
  PinnedMemory& pinned() { return pinned_; }
  Queue& queue(int device, int64_t stream);
  Queue& queue(const c10::Stream& s) { return queue(s.device_index(), s.id()); }
  /// The current stream of this thread.
  Queue& current_queue(const c10::Device& device);

  /// Streams of the pool, in turn.
  int64_t next_stream(int device);
  void reseed(uint64_t seed);
  void drain();

  std::atomic<uint64_t> async_copies{0}, staged_copies{0}, host_waits{0}, operators{0};
  void note_fallback(const std::string& op);
  std::set<std::string> fallbacks() const;
  void lack(const std::string& op, bool lacks);
  bool lacks(const std::string& op) const;

 private:
  Machine();

  Mapping mapping_;
  PinnedMemory pinned_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::atomic<int64_t> next_[kDevices]{};
  mutable std::mutex mutex_;
  std::set<std::string> fallbacks_, lacking_;
};

}  // namespace trireme::pretend
