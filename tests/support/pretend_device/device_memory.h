// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/support/pretend_device/mapping.h"
#include "tests/support/pretend_device/queue.h"

namespace trireme::pretend {

/// Bytes of one device, in blocks of 512. Reserved: also what is free but not yet for every stream.
struct MemoryCounts {
  size_t allocated = 0, peak_allocated = 0;
  size_t reserved = 0, peak_reserved = 0;
  uint64_t blocks_taken = 0, out_of_memory = 0;
};

/// One device's allocator. A block that is free again may go to its own stream at once, and to
/// others when that stream, and those that it was recorded on, have done all that they had to do
/// when it was freed. Bytes that nobody wrote, and those of freed blocks, are NaN.
class DeviceMemory {
 public:
  DeviceMemory(const Mapping& mapping, int device);

  /// Throws c10::OutOfMemoryError, in CUDA's words.
  void* take(size_t bytes, Queue& stream);
  void give_back(void* p);
  /// record_stream(): `stream` uses the block, too.
  void used_on(const void* p, Queue& stream);

  void set_limit(size_t bytes);
  size_t limit() const;
  MemoryCounts counts();
  /// Peaks are what there is now.
  void reset_peaks();

 private:
  struct Free {
    size_t size;
    std::vector<Ticket> busy;  // who must get so far before everybody may have it
  };
  struct Taken {
    size_t size;
    Queue* home;
    std::vector<Queue*> users;
  };
  using FreeRanges = std::map<size_t, Free>;  // by offset

  void tidy();
  FreeRanges::iterator fitting(size_t size, const Queue& stream);
  void* cut(FreeRanges::iterator range, size_t size, Queue& stream);
  void wait_for_what_is_free(std::unique_lock<std::mutex>& lock);
  void count();
  /// To LibTorch's profiler, as its own allocators do.
  void report(void* p, int64_t bytes) const;
  [[noreturn]] void fail(size_t bytes);

  const Mapping& mapping_;
  const int device_;
  mutable std::mutex mutex_;
  FreeRanges free_;
  std::unordered_map<size_t, Taken> taken_;
  size_t limit_ = kBytesPerDevice, touched_ = 0;  // beyond touched_ nobody ever wrote
  MemoryCounts counts_;
};

}  // namespace trireme::pretend
