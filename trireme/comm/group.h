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

/// A ReduceOp, or premul_sum(factor): each rank's elements times its own factor, then the sum.
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

/// As `from` of a recv: whoever sends first with this tag.
constexpr int kAnySource = -1;

namespace detail {
class Backend;
struct Token {
  uint64_t number = 0;
  int32_t peer = -1;  // of a complete recv: who sent it, where that is known
  uint8_t kind = 0;   // 0: complete
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
  /// Complete when all parts are.
  explicit Work(std::vector<Work> parts);
  /// Complete once `rest` has run: in the first wait(), on the thread that waits, never elsewhere.
  /// What it throws every later wait() throws again. For results that take several calls in turn
  /// (grad/hooks/stateful_hook.h); their deadlines are those of the calls.
  explicit Work(std::function<void()> rest);
  /// Returns when the result is there; rethrows what went wrong (Mismatch, PeerLost, Timeout,
  /// Aborted), after which the group is finished. Deadline: the group's timeout, counted from here.
  void wait();
  void wait(Duration timeout);
  /// Makes progress and tells; throws as wait() does.
  bool is_completed();
  /// Who sent what a recv got; once it is complete.
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

/// A handle to a group of ranks; copies are the same group. The last one that goes says to the
/// others that this rank left.
///
/// Tensors: dense, any strides (a non-contiguous one is copied on the way), on the backend's
/// device; float64, float32, float16, bfloat16, complex128, complex64, int64, int32, int16, int8,
/// uint8, bool, as far as supports() says. Bitwise ops are for integers and bool, avg for floating
/// and complex, min and max for all but complex. Buffers that come from empty() are read and
/// written by peers in place; others may be copied on the way.
///
/// A child that was forked after the group was made is no rank: what it calls throws UsageError
/// (but for rank(), size() and other facts), and handles that go there say nothing to the other
/// ranks.
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
  explicit Group(std::shared_ptr<detail::Backend> backend);
  explicit operator bool() const { return backend_ != nullptr; }

  int rank() const;
  int size() const;
  const std::string& backend() const;  // "local", …
  Duration timeout() const;
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const;
  bool supports(ReduceOp op, at::ScalarType dtype) const;

  /// Uninitialised memory that peers can reach. Lives as long as the tensor's storage.
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options = {}) const;

  /// One memory that all ranks read and write, in `owner`'s arena (local backend; elsewhere
  /// UsageError). Every rank calls it. Contents are undefined at first; what a rank writes the
  /// others see behind a barrier(). The tensor is usable as long as this rank has it.
  at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) const;

  /// In place; the same result on every rank.
  Work all_reduce(const at::Tensor& tensor, Reduction op = {}, CallSite site = CallSite::here());
  Work broadcast(const at::Tensor& tensor, int root, CallSite site = CallSite::here());
  /// In place on `root`; the others' tensors are as before.
  Work reduce(const at::Tensor& tensor, int root, Reduction op = {},
              CallSite site = CallSite::here());
  /// outputs: size() tensors; outputs[r] becomes rank r's input, and has its shape: the parts may
  /// differ, and every rank knows them.
  Work all_gather(std::vector<at::Tensor> outputs, at::Tensor input,
                  CallSite site = CallSite::here());
  /// output: size() × input.numel() elements, rank after rank.
  Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                              CallSite site = CallSite::here());
  /// inputs: size() tensors; output becomes the reduction of every rank's inputs[rank()], whose
  /// shape it has. The parts may differ; inputs[r] is of one shape on all ranks.
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
  /// inputs[r] goes to rank r, outputs[r] comes from it. Shapes may differ; both ends of a pair
  /// agree in the number of elements.
  Work all_to_all(std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs,
                  CallSite site = CallSite::here());
  /// Rows of dim 0: input_splits[r] of them go to rank r, output_splits[r] come from it; both
  /// empty: equal parts.
  Work all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         std::vector<int64_t> output_splits = {},
                         std::vector<int64_t> input_splits = {}, CallSite site = CallSite::here());

  /// input goes to rank to[rank()], and output gets the input of the rank that names this one: a
  /// ring's shift to the neighbour is {1, 2, …, 0}. `to` is a permutation of the ranks, the same on
  /// all of them. Shapes may differ; both ends of a pair agree in the number of elements. The two
  /// tensors do not overlap. As torch's permute_tensor.
  Work permute(const at::Tensor& output, const at::Tensor& input, const std::vector<int>& to,
               CallSite site = CallSite::here());

  /// One launch for a list of tensors of one dtype, through one buffer.
  Work all_reduce_coalesced(std::vector<at::Tensor> tensors, Reduction op = {},
                            CallSite site = CallSite::here());
  Work all_gather_into_tensor_coalesced(std::vector<at::Tensor> outputs,
                                        std::vector<at::Tensor> inputs,
                                        CallSite site = CallSite::here());
  Work reduce_scatter_tensor_coalesced(std::vector<at::Tensor> outputs,
                                       std::vector<at::Tensor> inputs, Reduction op = {},
                                       CallSite site = CallSite::here());

  /// Only these two ranks call. A message goes to the oldest recv of its tag; messages of a pair
  /// and tag arrive in order. dtype and count must agree at both ends. Like every call here they
  /// return at once: isend and irecv are other names.
  Work send(const at::Tensor& tensor, int to, int tag = 0, CallSite site = CallSite::here());
  Work recv(const at::Tensor& tensor, int from, int tag = 0, CallSite site = CallSite::here());
  Work isend(const at::Tensor& tensor, int to, int tag = 0, CallSite site = CallSite::here());
  Work irecv(const at::Tensor& tensor, int from, int tag = 0, CallSite site = CallSite::here());
  /// All of them at once: sends and receives that cross never wait for each other.
  std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops,
                                      CallSite site = CallSite::here());

  /// Returns when every rank has called it.
  void barrier(CallSite site = CallSite::here());
  /// A barrier that rank 0 watches: Timeout, on every rank that is there, names the first rank that
  /// did not come within `timeout`, or with wait_all_ranks all of them. After that the group is
  /// finished.
  void monitored_barrier(Duration timeout, bool wait_all_ranks = false,
                         CallSite site = CallSite::here());

  /// The ranks that give one color form a group, ordered by key, then by rank here. color < 0: this
  /// rank is in none and gets an empty handle. Every rank of this group calls it.
  Group split(int color, int key = 0, CallSite site = CallSite::here());
  /// ranks[i] becomes rank i. Every rank of this group calls it with the same list; those that are
  /// not in it get an empty handle.
  Group new_group(const std::vector<int>& ranks, CallSite site = CallSite::here());
  /// The name of the group, equal on all ranks: "world", "world/1", ….
  const std::string& name() const;
  /// This group's ranks as ranks of the world.
  std::vector<int> world_ranks() const;

  /// Bytes of shared memory that this rank owns: its arena and its control memory.
  int64_t shared_bytes() const;
  /// Moves calls that are under way forward; cheap when there are none. Never waits.
  void progress();
  /// Tells the peers that this rank is finished because of an error; they get PeerLost with this
  /// text. In a forked child: nothing.
  void abort(const std::string& why);

  detail::Backend* get() const { return backend_.get(); }

 private:
  detail::Backend& facts() const;
  detail::Backend& checked() const;  // and this process may call it
  Work work(detail::Token token) const;
  std::shared_ptr<detail::Backend> backend_;
};

}  // namespace trireme
