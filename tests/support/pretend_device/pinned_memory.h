// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include <map>
#include <mutex>
#include <vector>

#include "tests/support/pretend_device/queue.h"

namespace trireme::pretend {

/// Host memory that copies may read and write late. A block that was freed stays until the copies
/// that use it are done, as with CUDA's allocator; what the host writes into it before is its
/// fault.
class PinnedMemory {
 public:
  c10::DataPtr allocate(size_t bytes);
  bool holds(const void* p) const;
  /// A copy uses the block in which p is.
  void used(const void* p, Ticket by);
  /// Bytes that tensors have, and those that only copies still use.
  size_t bytes() const;
  size_t bytes_waiting() const;

 private:
  struct Block {
    size_t size = 0;
    std::vector<Ticket> users;
  };
  using Blocks = std::map<const char*, Block>;
  static void give_back(void* p);
  void free_what_is_done();
  Blocks::const_iterator around(const void* p) const;

  mutable std::mutex mutex_;
  Blocks taken_, waiting_;
};

/// A tensor of the CPU in pinned memory.
c10::Allocator& pinned_allocator();

}  // namespace trireme::pretend
