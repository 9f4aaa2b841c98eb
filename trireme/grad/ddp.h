// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace torch::nn {
class Module;
}

namespace trireme {

class Reducer;

enum class BufferPolicy {
  rank0,  // after each backward every rank takes rank 0's
  mean,   // … the mean of all (floating buffers; others from rank 0)
  none,
};

struct DdpOptions {
  size_t bucket_bytes = 0;  // 0: what suits the backend (local 4 MiB by its bench; others 25 MiB)
  size_t first_bucket_bytes = 0;  // 0: likewise (1 MiB)
  BufferPolicy buffers = BufferPolicy::rank0;
  CommHook hook{};  // empty: all_reduce
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
/// Every rank must run as many synchronising backwards as the others, from one thread. The module
/// must outlive this object; call to(dtype) or to(device) before, not after.
/// backward(create_graph=true) is a UsageError. An exception out of backward leaves gradients
/// undefined: reset() on every rank before the next.
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
  /// Plain lists of tensors: leaf parameters and buffers, named.
  DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, Group group,
                          DdpOptions options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;

  /// While the guard lives, backwards only accumulate; the first one after it reduces the sum of
  /// all.
  class TRIREME_API NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  void reset();
  const Reducer& reducer() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The bucket sizes that suit a backend.
struct BucketSizes;
BucketSizes bucket_sizes_for(const Group& group, size_t bytes, size_t first_bytes);

}  // namespace trireme
