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
  rank0,  // after each backward every rank takes rank 0's
  mean,   // … the mean of all (floating buffers; others from rank 0)
  none,
};

enum class GradientMean {
  of_ranks,    // p.grad() is the mean over ranks of their gradients, as torch's
  of_weights,  // losses are sums; p.grad() is their gradients' sum ÷ what all ranks gave to weigh()
};

/// With torch's names and defaults, where torch has the option.
struct DdpOptions {
  size_t bucket_bytes = 0;  // 0: what suits the backend (local 4 MiB by its bench; others 25 MiB)
  size_t first_bucket_bytes = 0;  // 0: likewise (1 MiB)
  BufferPolicy buffers = BufferPolicy::rank0;
  CommHook hook{};  // empty: all_reduce
  /// false: a parameter that some rank did not use is a UsageError, on all ranks, that names it.
  /// true: it is zeros there, and a parameter that no rank used keeps what it had; rank 0 logs the
  /// names. Costs nothing: ranks tell what they used with every round.
  bool find_unused_parameters = false;
  bool static_graph = false;  // grad/rounds/static_graph.h; unused parameters are as found
  GradientMean mean = GradientMean::of_ranks;
  /// Patterns (* and ?) of parameters that are reduced last, at the end of backward, however many
  /// gradients they got.
  std::vector<std::string> delayed{};
  /// Patterns of parameters with sparse gradients, beside those that the module tells
  /// (grad/rounds/sparse_gradients.h).
  std::vector<std::string> sparse{};
  /// true: a NaN or an infinity is a NumericError on every rank, naming rank and parameter.
  bool check_finite = false;
  /// Called on each rank at the end of a backward that reduces, when p.grad() is this rank's own
  /// gradient (with what no_sync() added up) and nothing of it has left: what it makes of p.grad()
  /// is what is reduced. Nothing travels during backward then. For clipping before a codec
  /// (docs/compression.md). One that throws finishes the group, as a hook that throws.
  std::function<void()> before_reducing{};
  /// Reproducible mode: so many backwards of each rank make a round (a power of two; 0: off, every
  /// backward is one). Each is a *leaf*, a micro-batch of fixed shape with the *sum* of its losses.
  /// Gradients of leaves are added along the binary tree over leaf numbers (rank r has leaves
  /// r·leaves … of a step, GlobalBatch deals samples so), so leaves × ranks being equal, the
  /// weights have the same bits on 1, 2, 4, … ranks of the local backend. zero_grad() of this
  /// object before each round; dropout is trireme::Dropout inside a RandomScope; BLAS threads are
  /// the same in all runs. What cannot keep the bits is a UsageError at construction
  /// (docs/your_own_loop.md).
  int leaves = 0;
};

/// Data parallelism around any module and any training loop: each rank runs its own batch, and when
/// backward() returns p.grad() is the mean over ranks of every parameter that requires a gradient.
/// (The training step of train/ uses sums instead and scales once; docs/vocabulary.md.)
///
/// Construction checks that all ranks hold the same parameters and buffers (Mismatch names the
/// first difference), then takes rank 0's values. Gradients live in buckets that are reduced while
/// backward runs; p.grad() is an alias into them. zero_grad() of either kind is survived. One
/// bucket's memory is all that is added to the model's own gradients.
///
/// Every rank must run as many synchronising backwards as the others, from one thread (ranks with
/// fewer batches: grad/join.h). Several of these objects on one group are fine as long as ranks run
/// their backwards in the same order. The module must outlive this object. torch::load() and
/// set_data() into it are followed where all ranks do it alike; values that differ are a Mismatch,
/// to(dtype) and to(device) a UsageError, on all ranks, from the next backward.
/// backward(create_graph=true) is a UsageError. An exception out of backward leaves gradients
/// undefined: reset() on every rank before the next.
///
/// What ranks refuse together (an unused parameter, a NaN, forward counts that differ) is thrown
/// from backward() on every rank, in that step; gradients are reduced, and the next backward is as
/// if nothing had been.
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
  /// Plain lists of tensors: leaf parameters (those that require no gradient are broadcast once)
  /// and buffers, named.
  DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, Group group,
                          DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;

  /// While the guard lives, backwards only accumulate; the first one after it reduces the sum of
  /// all, of parameters too that it does not come to itself.
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

  /// GradientMean::of_weights: the samples or tokens over which the next backward's loss is a sum.
  /// Before each backward, those inside no_sync() too; gradients are set to zero or none between
  /// rounds. Then accumulation and ranks of any unequal sizes give what one batch of all gives.
  void weigh(double weight);
  /// Weight of the last round, over all ranks.
  double total_weight() const;

  /// module->forward(args…), counted where gradients are recorded. Who calls it on all ranks learns
  /// in the first backward after it that a rank ran another number of forwards (its loss did not
  /// depend on the module, say): Mismatch on all of them, with the counts. With static_graph the
  /// round is that of the backward which comes to its output (tensors, nested as an LSTM's), also
  /// where the first gradient is one of a backward inside of that; such an output cannot be changed
  /// in place.
  template <class Holder, class... Args>
  auto forward(Holder& module, Args&&... args) {
    count_forward();
    return at_backward(module->forward(std::forward<Args>(args)...));
  }
  void count_forward();

  /// Parameters that no rank used in the last round.
  std::vector<std::string> unused_parameters() const;

  /// Sets the gradients to none, which torch::optim's zero_grad() of LibTorch 1.13 cannot, and
  /// which a round of leaves begins with.
  void zero_grad();

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
