// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/gloo/messenger.h"
#include "trireme/comm/local/types.h"

namespace trireme::detail {

/// Thrown by waits of a group that has failed.
struct Revoked {};

/// Identifies a call in progress: its messages carry it, so that they match only those of the same
/// call.
struct CallKey {
  uint64_t seq = 0;
  uint64_t digest = 0;
};

/// Collectives over messages; each returns when this rank's part is done. Reductions use the order
/// of local/reduce_kernels.h. Large tensors are sent in segments, so that the next one is in flight
/// while this one is reduced. Use from one thread. Throws MessageLost and Revoked, after which the
/// group can no longer be used.
class Collectives {
 public:
  /// messenger: null if size is 1.
  Collectives(Messenger* messenger, int rank, int size)
      : messenger_(messenger), rank_(rank), size_(size) {}

  void all_reduce(CallKey key, local::DType dtype, ReduceOp op, void* data, size_t count);
  void reduce(CallKey key, local::DType dtype, ReduceOp op, void* data, size_t count, int root);
  /// in: size × count elements. out may be this rank's part of it.
  void reduce_scatter(CallKey key, local::DType dtype, ReduceOp op, void* out, const void* in,
                      size_t count);
  void broadcast(CallKey key, void* data, size_t bytes, int root);
  /// Gathers parts of `bytes` each into each rank's place in the root's buffer.
  void gather(CallKey key, void* out, const void* in, size_t bytes, int root);
  void scatter(CallKey key, void* out, const void* in, size_t bytes, int root);
  void all_gather(CallKey key, void* out, const void* in, size_t bytes);
  /// Exchanges bytes; the parts from and for each rank are consecutive.
  void all_to_all(CallKey key, void* out, const void* in, const std::vector<size_t>& out_bytes,
                  const std::vector<size_t>& in_bytes);
  void barrier(CallKey key);

 private:
  struct Batch;
  char* staging(size_t bytes);
  int peer(int i) const { return (rank_ + i) % size_; }
  template <class Start, class Finish>
  static void in_pairs(size_t segments, Start start, Finish finish);
  size_t part_elements(size_t item) const;
  template <class PartOf, class Reduce>
  void scattered(CallKey key, size_t segments, char* stage, size_t room, PartOf part,
                 Reduce reduce);
  void reduce_to(CallKey key, local::DType dtype, ReduceOp op, char* data, size_t count, int root);
  void exchange_and_reduce(CallKey key, local::DType dtype, ReduceOp op, char* data, size_t count,
                           int root);
  void scatter_and_return(CallKey key, local::DType dtype, ReduceOp op, char* data, size_t count,
                          int root);

  Messenger* const messenger_;
  const int rank_, size_;
  at::Tensor staging_;
};

}  // namespace trireme::detail
