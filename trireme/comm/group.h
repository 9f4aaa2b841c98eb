// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/call_site.h"
#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/comm/ops.h"

// Groups of ranks and the collectives of torch.distributed between them.
namespace trireme {

/// A ReduceOp, or premul_sum(factor): each rank's elements are multiplied by that rank's factor and
/// then added.
struct Reduction {
  Reduction(ReduceOp op = ReduceOp::sum) : op(op) {}
  ReduceOp op;
  double factor = 1;
};
inline Reduction premul_sum(double factor) {
  Reduction r(ReduceOp::sum);
  r.factor = factor;
  return r;
}

/// As `from` of a recv: accepts the first message with this tag from any rank.
constexpr int kAnySource = -1;

namespace detail {
class Backend;
struct Token {
  uint64_t number = 0;
  int32_t peer = -1;  // the sender, of a complete recv where it is known
  uint8_t kind = 0;   // 0: complete
};
}  // namespace detail

/// A call in progress. The group keeps its tensors alive until it completes; until then their
/// contents belong to the call. Destroying a Work does not cancel the call. Use it from the thread
/// that uses the group.
class TRIREME_API Work {
 public:
  Work() = default;  // complete
  Work(std::shared_ptr<detail::Backend> backend, detail::Token token)
      : backend_(std::move(backend)), token_(token) {}
  /// Completes when all of its parts have completed.
  explicit Work(std::vector<Work> parts);
  /// Completes once `rest` has run, which happens in the first wait(), on the thread that waits. If
  /// it throws, every later wait() throws the same error. Meant for results that take several calls
  /// in sequence (grad/hooks/stateful_hook.h); the deadlines are those of the calls.
  explicit Work(std::function<void()> rest);
  /// Waits for the result. Throws the error of the call (Mismatch, PeerLost, Timeout, Aborted),
  /// after which the group can no longer be used. The deadline is the group's timeout, counted from
  /// here.
  void wait();
  void wait(Duration timeout);
  /// Makes progress and returns whether the call is complete; throws as wait() does.
  bool is_completed();
  /// The rank that sent the message of a recv. Valid once the recv is complete.
  int source();

 private:
  std::shared_ptr<detail::Backend> backend_;
  detail::Token token_;
  struct Compound;
  std::shared_ptr<Compound> compound_;
};

/// One part of batch_isend_irecv.
struct P2POp {
  enum Kind : uint8_t { isend, irecv } kind;
  at::Tensor tensor;
  int peer;
  int tag = 0;
};

/// A handle to a group of ranks; copies refer to the same group. When the last copy is destroyed,
/// the other ranks are notified that this rank has left.
///
/// Tensors: dense, with any strides (a non-contiguous tensor is copied), on the backend's device.
/// Dtypes, where supports() allows them: float64, float32, float16, bfloat16, complex128,
/// complex64, int64, int32, int16, int8, uint8, bool. Bitwise ops need integers or bool, avg needs
/// floating or complex types, min and max take all but complex. Peers read and write buffers from
/// empty() in place; other buffers may be copied.
///
/// A child process forked after the group was made is not a rank: its calls throw UsageError
/// (except rank(), size() and other accessors), and destroying its handles notifies no one.
///
/// Only one thread may use a Group at a time. Calls return a Work at once and run in the order in
/// which they are issued. Every rank must make the same calls in the same order: the first call
/// that differs throws Mismatch on all ranks, naming both calls. An invalid call (wrong dtype, root
/// or shape) throws UsageError before anything is sent and leaves the group usable.
///
/// Reductions add in one fixed order (over ranks, split at the largest power of two), so the result
/// has the same bits on every rank and in every run. float16 and bfloat16 are added in float32 and
/// rounded once.
class TRIREME_API Group {
 public:
  Group() = default;  // no group: every call throws UsageError
  explicit Group(std::shared_ptr<detail::Backend> backend);
  explicit operator bool() const { return backend_ != nullptr; }

  int rank() const;
  int size() const;
  const std::string& backend() const;  // "local", …
  /// The default deadline of a call, counted from its wait().
  Duration timeout() const;
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const;
  bool supports(ReduceOp op, at::ScalarType dtype) const;
  /// Work::wait() for calls on such a device's tensors puts the current stream behind their results
  /// and returns; elsewhere it also waits until the peers have done their part.
  bool wait_orders_streams(at::DeviceType device) const;

  /// Uninitialised memory that peers can access directly. It lives as long as the tensor's storage.
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options = {}) const;

  /// Memory in `owner`'s arena that all ranks read and write (local backend only; UsageError on
  /// others). Every rank must call it. The contents are undefined at first; a barrier() makes what
  /// one rank wrote visible to the others. The tensor stays valid as long as this rank holds it.
  at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) const;

  /// Reduces in place; every rank gets the same result.
  Work all_reduce(const at::Tensor& tensor, Reduction op = {}, CallSite site = CallSite::here());
  /// Copies `root`'s tensor into the tensor of every rank.
  Work broadcast(const at::Tensor& tensor, int root, CallSite site = CallSite::here());
  /// Reduces in place on `root`; the tensors of other ranks are unchanged.
  Work reduce(const at::Tensor& tensor, int root, Reduction op = {},
              CallSite site = CallSite::here());
  /// outputs: size() tensors; outputs[r] receives rank r's input and must have its shape. Shapes
  /// may differ between ranks, and every rank must know them all.
  Work all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                  CallSite site = CallSite::here());
  /// output: size() × input.numel() elements, ordered by rank.
  Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                              CallSite site = CallSite::here());
  /// inputs: size() tensors; output receives the reduction of every rank's inputs[rank()] and must
  /// have its shape. The parts may differ in shape, but inputs[r] has one shape on all ranks.
  Work reduce_scatter(at::Tensor output, std::vector<at::Tensor> inputs, Reduction op = {},
                      CallSite site = CallSite::here());
  /// input: size() × output.numel() elements.
  Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, Reduction op = {},
                             CallSite site = CallSite::here());
  /// outputs: size() tensors of input's shape on `root`, none elsewhere.
  Work gather(std::vector<at::Tensor> outputs, at::Tensor input, int root,
              CallSite site = CallSite::here());
  /// inputs: size() tensors of output's shape on `root`, none elsewhere.
  Work scatter(at::Tensor output, std::vector<at::Tensor> inputs, int root,
               CallSite site = CallSite::here());
  /// inputs[r] is sent to rank r, and outputs[r] is received from it. Shapes may differ; both ends
  /// of a pair must agree on the number of elements.
  Work all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                  CallSite site = CallSite::here());
  /// Exchanges rows of dim 0: input_splits[r] rows go to rank r and output_splits[r] rows come from
  /// it. If both are empty, the parts are equal.
  Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         std::vector<int64_t> output_splits = {},
                         std::vector<int64_t> input_splits = {}, CallSite site = CallSite::here());

  /// Sends input to rank to[rank()] and receives into output the input of the rank that names this
  /// one; {1, 2, …, 0} shifts along a ring. `to` is a permutation of the ranks, the same on all of
  /// them. Shapes may differ; both ends of a pair must agree on the number of elements. The two
  /// tensors must not overlap. Corresponds to torch's permute_tensor.
  Work permute(const at::Tensor& output, const at::Tensor& input, const std::vector<int>& to,
               CallSite site = CallSite::here());

  /// The coalesced calls launch once for a list of tensors of one dtype, packed into one buffer.
  Work all_reduce_coalesced(std::vector<at::Tensor> tensors, Reduction op = {},
                            CallSite site = CallSite::here());
  Work all_gather_into_tensor_coalesced(std::vector<at::Tensor> outputs,
                                        std::vector<at::Tensor> inputs,
                                        CallSite site = CallSite::here());
  Work reduce_scatter_tensor_coalesced(std::vector<at::Tensor> outputs,
                                       std::vector<at::Tensor> inputs, Reduction op = {},
                                       CallSite site = CallSite::here());

  /// Point-to-point messages; only the two ranks involved call these. A message goes to the oldest
  /// recv with its tag, and messages of a pair and tag arrive in order. dtype and count must agree
  /// at both ends. All four return at once: isend and irecv are other names for send and recv.
  Work send(const at::Tensor& tensor, int to, int tag = 0, CallSite site = CallSite::here());
  Work recv(const at::Tensor& tensor, int from, int tag = 0, CallSite site = CallSite::here());
  Work isend(const at::Tensor& tensor, int to, int tag = 0, CallSite site = CallSite::here());
  Work irecv(const at::Tensor& tensor, int from, int tag = 0, CallSite site = CallSite::here());
  /// Issues all of them at once, so that sends and receives that cross never wait for each other.
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops,
                                      CallSite site = CallSite::here());

  /// Returns when every rank has called it.
  void barrier(CallSite site = CallSite::here());
  /// A barrier that rank 0 monitors. If a rank does not arrive within `timeout`, every rank that
  /// did throws Timeout naming the first missing rank, or all of them with wait_all_ranks. The
  /// group can then no longer be used.
  void monitored_barrier(Duration timeout, bool wait_all_ranks = false,
                         CallSite site = CallSite::here());

  /// Forms a group of the ranks that pass the same color, ordered by key, then by rank here. A rank
  /// that passes color < 0 joins none and gets an empty handle. Every rank of this group must call
  /// it.
  Group split(int color, int key = 0, CallSite site = CallSite::here());
  /// Forms a group in which ranks[i] becomes rank i. Every rank of this group must call it with the
  /// same list; those not in it get an empty handle.
  Group new_group(const std::vector<int>& ranks, CallSite site = CallSite::here());
  /// The name of the group, the same on all ranks: "world", "world/1", and so on.
  const std::string& name() const;
  /// This group's ranks as ranks of the world.
  std::vector<int> world_ranks() const;

  /// Bytes of shared memory that this rank owns, as arena and as control memory.
  int64_t shared_bytes() const;
  /// Makes progress on calls in flight without waiting; cheap when there are none.
  void progress();
  /// Notifies the peers that this rank failed; their calls throw PeerLost with this text. Does
  /// nothing in a forked child.
  void abort(const std::string& why);

  detail::Backend* get() const { return backend_.get(); }

 private:
  detail::Backend& facts() const;
  detail::Backend& checked() const;  // throws unless this process may call it
  Work work(detail::Token token) const;
  std::shared_ptr<detail::Backend> backend_;
};

}  // namespace trireme
