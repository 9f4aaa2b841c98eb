// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// A private file on a fast disk for state that does not fit in memory. Blocks of it are read and
// written in the background, several at a time, past the page cache where the file system can.
namespace trireme {

enum class OffloadEngine {
  automatic,  // io_uring, or threads where the kernel or a container's seccomp filter refuses it
  io_uring,
  threads,  // pread and pwrite on one thread
};

struct OffloadFileOptions {
  std::string folder;                   // where the file goes; it must be there
  size_t block_size = size_t{1} << 20;  // bytes of one read or write; DeepSpeed: aio.block_size
  int queue_depth = 8;                  // of them in flight; DeepSpeed: aio.queue_depth
  OffloadEngine engine = OffloadEngine::automatic;
  bool direct = true;                           // O_DIRECT, where the file system takes it
  Duration timeout = std::chrono::minutes(10);  // a request that takes longer is given up
};

/// The file has no name: it is gone when the process ends, however that happens. Its bytes are
/// reserved at construction.
///
/// Regions: what was written as (offset, bytes) is read as the same; anything else that overlaps it
/// is a UsageError. Each block has a checksum, kept in memory, compared when it is read. Requests
/// that touch the same bytes go in the order in which they were issued, others in any.
///
/// Any thread may call. Memory belongs to the request until it is done, which the shared pointer
/// ensures; it may be one without an owner if the caller waits. The destructor waits for what is
/// under way, as long as the timeout.
///
/// UsageError: options out of range, memory not aligned. ResourceError: the folder is missing or
/// not writable, the disk is too small (with the bytes needed and free). From wait(): ResourceError
/// (the disk is full or fails), Corrupt (which bytes), Timeout; the file may be used further, and
/// what was being written must be written again before it is read.
class TRIREME_API OffloadFile {
 public:
  static constexpr size_t kAlignment = 4096;  // of offsets, bytes and memory

  OffloadFile(const OffloadFileOptions& options, uint64_t bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;

  class TRIREME_API Request {
   public:
    Request() = default;  // of nothing: wait() returns
    /// Throws what went wrong, each time.
    void wait() const;

   private:
    friend class OffloadFile;
    struct Impl;
    std::shared_ptr<Impl> impl_;
  };

  Request write(uint64_t offset, std::shared_ptr<void> from, size_t bytes);
  Request read(uint64_t offset, std::shared_ptr<void> into, size_t bytes);
  /// Are these the bytes that the region was last written with? By checksum; reads no disk. No
  /// request of the region may be under way.
  bool holds(uint64_t offset, const void* memory, size_t bytes) const;
  /// The region as read-only memory whose pages the kernel may drop; unmapped with its last owner.
  /// Not verified; a disk that fails then is SIGBUS, as with any mapping. No write of the region
  /// may be under way.
  std::shared_ptr<const void> map(uint64_t offset, size_t bytes) const;

  const char* engine() const;  // "io_uring" or "threads"
  /// Why io_uring is not used, where `automatic` found that it cannot be.
  const std::string& why_not_io_uring() const;
  bool direct() const;
  /// So many bytes from now on, more than before; the new ones are reserved. Errors as at
  /// construction, after which the file is as it was.
  void grow(uint64_t bytes);
  uint64_t bytes() const;
  const std::string& folder() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Page-aligned memory of at least so many bytes. ResourceError.
TRIREME_API std::shared_ptr<void> offload_memory(size_t bytes);

}  // namespace trireme
