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

// Flat tensors whose bytes lie in a file: this rank's parameter shards under ZeRO-3.
//
//   OffloadPool pool({{"blocks.0", n, at::kFloat}, …}, {.file = {.folder = "/nvme"}});
//   pool[0].put(shard);            // once at the start, and after each optimizer step
//   pool[0].prefetch();            // when it is known that it comes next
//   pool[0].bring(shard);          // before the all_gather
namespace trireme {

struct OffloadPoolOptions {
  OffloadFileOptions file = {};
  int buffer_count = 4;  // tensors under way at once; each as large as the largest (2 or more)
};

class OffloadPool;

/// One tensor of a pool; a handle, good as long as the pool.
class TRIREME_API OffloadedTensor {
 public:
  const std::string& name() const;
  int64_t numel() const;
  /// Reading begins; `bring` later finds it done. Does nothing if it has begun, or where all
  /// buffers hold what was prefetched and not brought.
  void prefetch();
  /// into = the bytes last put. Waits.
  void bring(at::Tensor into);
  /// Keeps `from`; it is copied and may change when this returns. Writing goes on in the
  /// background; what goes wrong is thrown by a later call that needs the buffer, by `bring` or by
  /// OffloadPool::wait().
  void put(const at::Tensor& from);
  /// … but what is in the file already is not written again (by checksum).
  void put_if_changed(const at::Tensor& from);
  /// What was put, as read-only memory whose pages the kernel may drop (OffloadFile::map). Waits
  /// for writes.
  std::shared_ptr<const void> view() const;

 private:
  friend class OffloadPool;
  OffloadedTensor(OffloadPool& pool, size_t index) : pool_(&pool), index_(index) {}
  OffloadPool* pool_;
  size_t index_;
};

/// Tensors given and taken are flat or not, contiguous, in CPU memory, of the entry's dtype and
/// number of elements. One thread at a time. UsageError: another tensor, or a bring before the
/// first put. ResourceError, Corrupt, Timeout as in offload_file.h.
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
  /// One more; the file and, where it is the largest, the buffers grow. Errors as at construction.
  void add(Entry entry);
  OffloadedTensor operator[](size_t i) { return {*this, i}; }
  /// Everything that was put is in the file.
  void wait();
  int64_t buffer_bytes() const;
  const OffloadFile& file() const;

 private:
  friend class OffloadedTensor;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
