// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <ostream>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"

namespace trireme {

/// Batch normalization with statistics over the samples of all ranks of a group, each counted once:
/// the result that torch::nn::BatchNorm would compute over the ranks' batches concatenated. Ranks
/// may hold different numbers of samples, or none.
///
/// x: [n, C] or [n, C, …] up to 5-D; float32, float64, bfloat16, float16 (the last two compute in
/// float32, whatever type the parameters have); any device that the group supports. Parameters,
/// buffers and options are those of BatchNorm, under the same names. In eval mode it is BatchNorm,
/// without a collective; if it has no running statistics, it then uses those of the local batch.
///
/// Ranks: each training forward makes one collective of 2·C + 1 float64 (mean, squares around it,
/// count), each backward one of 2·C, where x requires a gradient. So every rank must run the module
/// equally often and in the same order; a rank without samples runs it on [0, C, …] and calls
/// backward. If ranks may use different parameters in one step, give it a group of its own
/// (world.split(0)), because its calls must not interleave with DistributedDataParallel's in a
/// different order. Gradients of weight and bias are this rank's part; DistributedDataParallel
/// reduces them. Do not use it inside recompute(): the running statistics would be updated twice.
///
/// UsageError: no group in training mode; an unsupported shape; only one value per channel over all
/// ranks in training mode. Source: torch.nn.SyncBatchNorm.
class TRIREME_API SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group = {});
  /// Replaces one of LibTorch's BatchNorms and takes over its tensors, so that an optimizer that
  /// holds them stays valid.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group, at::Tensor weight,
                    at::Tensor bias, at::Tensor running_mean, at::Tensor running_var,
                    at::Tensor num_batches_tracked);

  at::Tensor forward(const at::Tensor& x);
  void reset() override;
  void reset_running_stats();
  void pretty_print(std::ostream& stream) const override;

  void set_group(Group group) { group_ = std::move(group); }
  const Group& group() const { return group_; }

  torch::nn::BatchNormOptions options;
  at::Tensor weight, bias;                                    // undefined without affine
  at::Tensor running_mean, running_var, num_batches_tracked;  // undefined without running stats

 private:
  void hold(at::Tensor w, at::Tensor b, at::Tensor mean, at::Tensor var, at::Tensor batches);
  at::Tensor train_forward(const at::Tensor& x);
  void move_running_stats(const at::Tensor& mean, const at::Tensor& squares, double count);

  Group group_;
};

TORCH_MODULE(SyncBatchNorm);

/// Makes the BatchNorms below `root` synchronise over `group`: those in a torch::nn::Sequential,
/// ModuleList or ModuleDict are replaced by a SyncBatchNorm that takes over their tensors, and
/// every SyncBatchNorm gets the group. Returns how many there are afterwards. Every rank calls it;
/// it may be called before or after an optimizer is built.
///
/// A module held by a data member of a class cannot be replaced in C++. Such a BatchNorm (or one
/// that is also held elsewhere, or `root` itself) causes a UsageError that lists all of them and
/// says what to write instead; nothing has been changed in that case.
TRIREME_API int convert_sync_batch_norm(torch::nn::Module& root, const Group& group);
/// A module holder or a shared_ptr to a module.
template <class Holder>
requires requires(Holder& h) { static_cast<torch::nn::Module&>(*h); }
int convert_sync_batch_norm(Holder& root, const Group& group) {
  return convert_sync_batch_norm(static_cast<torch::nn::Module&>(*root), group);
}

}  // namespace trireme
