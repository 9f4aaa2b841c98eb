// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// A private file on a fast disk for state that does not fit in memory. Blocks are read and written
// in the background, several at a time, bypassing the page cache if the file system supports it.
namespace trireme {

enum class OffloadEngine {
  automatic,  // io_uring, or threads where the kernel or a container's seccomp filter refuses it
  io_uring,
  threads,  // pread and pwrite on one thread
};

struct OffloadFileOptions {
  std::string folder;                   // the folder for the file; it must exist
  size_t block_size = size_t{1} << 20;  // bytes of one read or write; DeepSpeed: aio.block_size
  int queue_depth = 8;                  // blocks in flight; DeepSpeed: aio.queue_depth
  OffloadEngine engine = OffloadEngine::automatic;
  bool direct = true;                           // O_DIRECT, if the file system supports it
  Duration timeout = std::chrono::minutes(10);  // a request that takes longer is abandoned
};

/// The file has no name, so it disappears when the process ends, however that happens. Its space is
/// reserved at construction.
///
/// Regions: what was written as (offset, bytes) must be read with the same values; any other
/// overlapping request is a UsageError. Each block has a checksum, which is kept in memory and
/// verified when the block is read. Requests for the same bytes are executed in the order in which
/// they were issued, others in any order.
///
/// Any thread may call. The request keeps the memory alive through the shared pointer until it is
/// done; the pointer may be non-owning if the caller waits. The destructor waits for requests in
/// progress, up to the timeout.
///
/// UsageError: options out of range, memory not aligned. ResourceError: the folder is missing or
/// not writable, or the disk is too small (the message says how many bytes are needed and free).
/// From wait(): ResourceError (the disk is full or fails), Corrupt (the message says which bytes),
/// Timeout; the file remains usable, but a region whose write failed must be written again before
/// it is read.
class TRIREME_API OffloadFile {
 public:
  static constexpr size_t kAlignment = 4096;  // of offsets, bytes and memory

  OffloadFile(const OffloadFileOptions& options, uint64_t bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;

  class TRIREME_API Request {
   public:
    Request() = default;  // an empty request: wait() returns
    /// Waits until the request is done; throws its error, on every call.
    void wait() const;

   private:
    friend class OffloadFile;
    struct Impl;
    std::shared_ptr<Impl> impl_;
  };

  Request write(uint64_t offset, std::shared_ptr<void> from, size_t bytes);
  Request read(uint64_t offset, std::shared_ptr<void> into, size_t bytes);
  /// Whether these are the bytes last written to the region, judged by checksum, without reading
  /// the disk. No request for the region may be in progress.
  bool holds(uint64_t offset, const void* memory, size_t bytes) const;
  /// Maps the region as read-only memory whose pages the kernel may drop; unmapped with its last
  /// owner. Checksums are not verified, and a disk failure raises SIGBUS, as with any mapping. No
  /// write to the region may be in progress.
  std::shared_ptr<const void> map(uint64_t offset, size_t bytes) const;

  const char* engine() const;  // "io_uring" or "threads"
  /// The reason why `automatic` did not choose io_uring; empty if it did.
  const std::string& why_not_io_uring() const;
  bool direct() const;
  /// Enlarges the file to this many bytes and reserves the new space. Errors as at construction,
  /// after which the file is unchanged.
  void grow(uint64_t bytes);
  uint64_t bytes() const;
  const std::string& folder() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Page-aligned memory of at least this many bytes. ResourceError if there is none.
TRIREME_API std::shared_ptr<void> offload_memory(size_t bytes);

}  // namespace trireme
