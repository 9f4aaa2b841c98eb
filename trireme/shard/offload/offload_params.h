// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/shard/offload/offload_file.h"

// Tensors that are kept in a file: this rank's parameter shards under ZeRO-3.
//
//   OffloadPool pool({{"blocks.0", n, at::kFloat}, …}, {.file = {.folder = "/nvme"}});
//   pool[0].put(shard);            // at the start, and after each optimizer step
//   pool[0].prefetch();            // when it is known to be needed next
//   pool[0].read_into(shard);      // before the all_gather
namespace trireme {

struct OffloadPoolOptions {
  OffloadFileOptions file = {};
  int buffer_count = 4;  // 2 or more; each as large as the largest tensor
};

class OffloadPool;

/// One tensor of a pool; a handle that is valid as long as the pool.
class TRIREME_API OffloadedTensor {
 public:
  const std::string& name() const;
  int64_t numel() const;
  /// Starts reading ahead of `read_into`. Does nothing if reading has started already, or if all
  /// buffers hold tensors that were prefetched but not yet read into a tensor.
  void prefetch();
  /// Waits for the bytes last put and copies them to `into`.
  void read_into(at::Tensor into);
  /// Stores a copy of `from`, which may change once this returns. Writing continues in the
  /// background; its errors are thrown by a later call that needs the buffer, by `read_into` or by
  /// OffloadPool::wait().
  void put(const at::Tensor& from);
  /// Like put(), but writes nothing if the file already holds these bytes (by checksum).
  void put_if_changed(const at::Tensor& from);
  /// The bytes last put, as read-only memory whose pages the kernel may drop (OffloadFile::map).
  /// Waits for writes.
  std::shared_ptr<const void> view() const;

 private:
  friend class OffloadPool;
  OffloadedTensor(OffloadPool& pool, size_t index) : pool_(&pool), index_(index) {}
  OffloadPool* pool_;
  size_t index_;
};

/// Tensors passed in must be contiguous, of any shape, in CPU memory, with the entry's dtype and
/// number of elements. One thread at a time. UsageError for any other tensor, or for read_into()
/// before the first put(). ResourceError, Corrupt and Timeout as in offload_file.h.
class TRIREME_API OffloadPool {
 public:
  struct Entry {
    std::string name;
    int64_t numel;
    at::ScalarType dtype;
  };
  OffloadPool(std::vector<Entry> entries, const OffloadPoolOptions& options);
  ~OffloadPool();
  OffloadPool(const OffloadPool&) = delete;

  size_t size() const;
  /// Adds a tensor; the file grows, and so do the buffers if it is the largest. Errors as at
  /// construction.
  void add(Entry entry);
  OffloadedTensor operator[](size_t i) { return {*this, i}; }
  /// Waits until everything that was put is in the file.
  void wait();
  int64_t buffer_bytes() const;
  const OffloadFile& file() const;

 private:
  friend class OffloadedTensor;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
