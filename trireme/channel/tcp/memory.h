// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trireme/base/export.h"
#include "trireme/channel/channel.h"

namespace trireme::channel::tcp {

/// Memory of this process, aligned for any dtype and vector. Never null. ResourceError.
TRIREME_API std::shared_ptr<void> plain_memory(uint64_t bytes);

/// Memory for a body that somebody has announced. A small one is allocated as its first byte comes;
/// a large one grows with what has come, to at most twice as much, and moves without being copied
/// (mremap). One thread at a time.
class TRIREME_API GrowingMemory {
 public:
  explicit GrowingMemory(uint64_t bytes) : bytes_(bytes) {}
  GrowingMemory(GrowingMemory&& other) noexcept;
  GrowingMemory& operator=(GrowingMemory&&) = delete;
  ~GrowingMemory();

  bool whole() const { return come_ == bytes_; }
  /// Where the next bytes belong: at least one and at most `most`, unless it is whole. Valid until
  /// the next call. ResourceError.
  std::span<char> room(uint64_t most);
  void came(uint64_t bytes) { come_ += bytes; }
  /// Of one that is whole.
  Body take();

 private:
  void grow();

  uint64_t bytes_;
  uint64_t come_ = 0;
  std::shared_ptr<void> small_;
  void* mapped_ = nullptr;
  uint64_t capacity_ = 0;
};

}  // namespace trireme::channel::tcp
