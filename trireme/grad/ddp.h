// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/each_tensor.h"
#include "trireme/tensor/parameter_table.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace trireme {

class Reducer;

enum class BufferPolicy {
  rank0,  // after each backward, every rank takes rank 0's buffers
  mean,  // after each backward, every rank takes the mean of the floating-point ones, else rank 0's
  none,
};

enum class GradientMean {
  of_ranks,  // p.grad() is the mean of the ranks' gradients, as in torch
  /// Losses are sums; p.grad() is the sum of the gradients ÷ the total weight passed by all ranks
  /// to set_weight().
  of_weights,
};

/// Names and defaults are torch's for the options that torch has.
struct DdpOptions {
  size_t bucket_bytes = 0;  // 0: what suits the backend (local: 4 MiB, as measured; others: 25 MiB)
  size_t first_bucket_bytes = 0;  // 0: likewise (1 MiB)
  BufferPolicy buffers = BufferPolicy::rank0;
  CommHook hook{};  // empty: all_reduce
  /// false: a parameter that some rank did not use is a UsageError on all ranks, with its name.
  /// true: its gradient counts as zeros on that rank, and a parameter that no rank used keeps its
  /// gradient; rank 0 logs the names. At no extra cost: ranks exchange which parameters they used
  /// in every round anyway.
  bool find_unused_parameters = false;
  bool static_graph = false;  // grad/rounds/static_graph.h; finds unused parameters by itself
  GradientMean mean = GradientMean::of_ranks;
  /// Patterns (* and ?) of parameters to reduce last, at the end of backward, however many
  /// gradients they get.
  std::vector<std::string> delayed{};
  /// Patterns of parameters with sparse gradients, in addition to those found in the module
  /// (grad/rounds/sparse_gradients.h).
  std::vector<std::string> sparse{};
  /// true: a NaN or an infinity is a NumericError on every rank that names the rank and the
  /// parameter.
  bool check_finite = false;
  /// Called on each rank at the end of a backward that reduces, when p.grad() is this rank's own
  /// gradient (including what no_sync() accumulated) and nothing of it has been sent: the function
  /// may change p.grad(), and the result is reduced. Communication then does not overlap with
  /// backward. Meant for clipping before a codec (docs/compression.md). If it throws, it ends the
  /// group, like a hook that throws.
  std::function<void()> before_reducing{};
  /// Reproducible mode: the number of backwards per rank that make up a round (a power of two; 0:
  /// off, every backward is a round). Each backward is a *leaf*: a micro-batch of fixed shape whose
  /// loss is a *sum*. The gradients of leaves are added along the binary tree over leaf numbers
  /// (rank r has the leaves from r·leaves on, as GlobalBatch assigns samples), so with the same
  /// leaves × ranks the weights have the same bits on 1, 2, 4, … ranks of the local backend. Call
  /// this object's zero_grad() before each round, use trireme::Dropout inside a RandomScope, and
  /// the same number of BLAS threads in all runs. Anything that cannot preserve the bits is a
  /// UsageError at construction (docs/your_own_loop.md).
  int leaves = 0;
};

/// Data parallelism around any module and any training loop: each rank runs its own batch, and when
/// backward() returns, p.grad() of every parameter that requires a gradient is the mean over ranks.
/// (The training step in train/ uses sums instead and scales once; see docs/vocabulary.md.)
///
/// Construction checks that all ranks hold the same parameters and buffers (Mismatch names the
/// first difference), then takes rank 0's values. Gradients live in buckets that are reduced while
/// backward runs; p.grad() is an alias into them. Either kind of zero_grad() may be used. The only
/// additional memory, beyond the model's own gradients, is one bucket.
///
/// Every rank must run the same number of synchronising backwards, from one thread (for ranks with
/// fewer batches, see grad/join.h). Several of these objects may use one group as long as all ranks
/// run their backwards in the same order. The module must outlive this object. torch::load() and
/// set_data() into the module are picked up if all ranks do the same; values that differ are a
/// Mismatch, to(dtype) and to(device) a UsageError, thrown on all ranks by the next backward.
/// backward(create_graph=true) is a UsageError. An exception from backward leaves gradients
/// undefined: call reset() on every rank before the next one.
///
/// Errors that all ranks detect together (an unused parameter, a NaN, differing forward counts) are
/// thrown by backward() on every rank in that step; gradients have been reduced, and the next
/// backward is not affected.
///
/// Source: torch.nn.parallel.DistributedDataParallel.
class TRIREME_API DistributedDataParallel {
 public:
  DistributedDataParallel(torch::nn::Module& module, Group group, DdpOptions options = {});
  /// A module holder (`Net net; DistributedDataParallel ddp(net, world);`) or a shared_ptr to a
  /// module.
  template <class Holder>
  requires requires(Holder& h) { static_cast<torch::nn::Module&>(*h); }
  DistributedDataParallel(Holder& module, Group group, DdpOptions options = {})
      : DistributedDataParallel(static_cast<torch::nn::Module&>(*module), std::move(group),
                                std::move(options)) {}
  /// A TorchScript module, as torch::jit::load() gives it.
  DistributedDataParallel(torch::jit::Module& module, Group group, DdpOptions options = {});
  /// Plain lists of named tensors: leaf parameters (those that require no gradient are only
  /// broadcast at construction) and buffers.
  DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, Group group,
                          DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;

  /// While the guard lives, backwards only accumulate; the first one after it reduces the sum of
  /// all of them, including parameters that it does not reach itself.
  class TRIREME_API NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Reduces what backwards inside of no_sync() have accumulated, without another backward: for a
  /// stage of a pipeline, whose backwards are many and may be halves of one (PipelineOptions::
  /// reduce_gradients). Between backwards, inside of no_sync() or not; every rank calls it as
  /// often. UsageError with DdpOptions::leaves.
  void reduce_accumulated();

  /// For GradientMean::of_weights: the number of samples or tokens over which the next backward's
  /// loss is a sum. Call it before each backward, including those inside no_sync(), and zero or
  /// drop the gradients between rounds. The weights of a round add up, so accumulation and ranks
  /// with unequal batches give the same result as one batch of all samples.
  void set_weight(double weight);
  /// The weight of the last round, summed over all ranks.
  double total_weight() const;

  /// Calls module->forward(args…) and counts it if gradients are being recorded. If every rank uses
  /// it, the next backward detects a rank that ran a different number of forwards (for example
  /// because its loss did not depend on the module): Mismatch on all ranks, with the counts. With
  /// static_graph, the round is that of the backward that reaches this output (tensors, nested like
  /// an LSTM's), even if the first gradient comes from a nested backward; such an output cannot be
  /// changed in place.
  template <class Holder, class... Args>
  auto forward(Holder& module, Args&&... args) {
    count_forward();
    return at_backward(module->forward(std::forward<Args>(args)...));
  }
  void count_forward();

  /// Parameters that no rank used in the last round.
  std::vector<std::string> unused_parameters() const;

  /// Resets the gradients to undefined, as a round of leaves requires; torch::optim's zero_grad()
  /// in LibTorch 1.13 cannot do that.
  void zero_grad();

  /// Call it on every rank after an exception from backward.
  void reset();
  const Reducer& reducer() const;

 private:
  friend class Join;
  at::Tensor at_backward(const at::Tensor& output);
  template <class T>
  T at_backward(T output) {
    detail::each_tensor(output, [this](at::Tensor& t) { t = at_backward(std::as_const(t)); });
    return output;
  }
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
