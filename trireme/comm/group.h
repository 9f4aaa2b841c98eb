// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/call_site.h"
#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// Groups of ranks and the collectives of torch.distributed between them.
namespace trireme {

enum class ReduceOp : uint8_t { sum, avg, min, max };

enum class Collective : uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  send,
  recv,
  barrier
};

namespace detail {
class Backend;
struct Token {
  uint64_t number = 0;
  int32_t peer = -1;
  uint8_t kind = 0;  // 0: complete
};
}  // namespace detail

/// A call under way. Its tensors are kept alive by the group until it is complete; their contents
/// belong to the call until then. Dropping a Work does not cancel the call. Used by the thread that
/// uses the group.
class TRIREME_API Work {
 public:
  Work() = default;  // complete
  Work(std::shared_ptr<detail::Backend> backend, detail::Token token)
      : backend_(std::move(backend)), token_(token) {}
  /// Returns when the result is there; rethrows what went wrong (Mismatch, PeerLost, Timeout,
  /// Aborted), after which the group is finished. Deadline: the group's timeout, counted from here.
  void wait();
  void wait(Duration timeout);
  /// Makes progress and tells; throws as wait() does.
  bool is_completed();

 private:
  std::shared_ptr<detail::Backend> backend_;
  detail::Token token_;
};

/// A handle to a group of ranks; copies are the same group. The last one that goes says to the
/// others that this rank left.
///
/// Tensors: dense, any strides (a non-contiguous one is copied on the way), on the backend's
/// device; float64, float32, float16, bfloat16, int64, int32, uint8 (bool travels as uint8 where
/// nothing is added). Buffers that come from empty() are read and written by peers in place; others
/// may be copied on the way.
///
/// One thread at a time uses a Group. Its calls run in issue order, and every rank must make the
/// same calls in the same order: the first call that differs throws Mismatch on all ranks, naming
/// both calls. A call that is a UsageError (wrong dtype, root, shape) throws before anything is
/// sent and leaves the group as it was.
///
/// Reductions have one fixed order (over ranks, split at the largest power of two): the same bits
/// on every rank and in every run. float16 and bfloat16 are added in float32 and rounded once.
class TRIREME_API Group {
 public:
  Group() = default;  // no group: every call is a UsageError
  explicit Group(std::shared_ptr<detail::Backend> backend) : backend_(std::move(backend)) {}
  explicit operator bool() const { return backend_ != nullptr; }

  int rank() const;
  int size() const;
  const std::string& backend() const;  // "local", …
  Duration timeout() const;
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const;

  /// Uninitialised memory that peers can reach. Lives as long as the tensor's storage.
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options = {}) const;

  /// In place; the same result on every rank.
  Work all_reduce(at::Tensor tensor, ReduceOp op = ReduceOp::sum, CallSite site = CallSite::here());
  Work broadcast(at::Tensor tensor, int root, CallSite site = CallSite::here());
  /// In place on `root`; the others' tensors are as before.
  Work reduce(at::Tensor tensor, int root, ReduceOp op = ReduceOp::sum,
              CallSite site = CallSite::here());
  /// outputs: size() tensors of input's shape; outputs[r] becomes rank r's input.
  Work all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                  CallSite site = CallSite::here());
  /// output: size() × input.numel() elements, rank after rank.
  Work all_gather_into_tensor(at::Tensor output, at::Tensor input,
                              CallSite site = CallSite::here());
  /// inputs: size() tensors of output's shape; output becomes the reduction of every rank's
  /// inputs[rank()].
  Work reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs,
                      ReduceOp op = ReduceOp::sum, CallSite site = CallSite::here());
  /// input: size() × output.numel() elements.
  Work reduce_scatter_tensor(at::Tensor output, at::Tensor input, ReduceOp op = ReduceOp::sum,
                             CallSite site = CallSite::here());
  /// Only these two ranks call. Messages of a pair arrive in order; dtype, count and tag must agree
  /// at both ends.
  Work send(at::Tensor tensor, int to, int tag = 0, CallSite site = CallSite::here());
  Work recv(at::Tensor tensor, int from, int tag = 0, CallSite site = CallSite::here());
  /// Returns when every rank has called it.
  void barrier(CallSite site = CallSite::here());

  /// Bytes of shared memory that this rank owns: its arena and its control memory.
  int64_t shared_bytes() const;
  /// Moves calls that are under way forward; cheap when there are none. Never waits.
  void progress();
  /// Tells the peers that this rank is finished because of an error; they get PeerLost with this
  /// text.
  void abort(const std::string& why);

  detail::Backend* get() const { return backend_.get(); }

 private:
  detail::Backend& checked() const;
  Work work(detail::Token token) const;
  std::shared_ptr<detail::Backend> backend_;
};

}  // namespace trireme
