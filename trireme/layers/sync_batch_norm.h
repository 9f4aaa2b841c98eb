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

/// Batch normalization whose statistics are those of the samples of all ranks of a group, each
/// counted once: what torch::nn::BatchNorm computes over the ranks' batches put together. Ranks may
/// hold different numbers of samples, or none.
///
/// x: [n, C] or [n, C, …] up to 5-D; float32, float64, bfloat16, float16 (the last two compute in
/// float32, whatever type the parameters have); any device that the group reaches. Parameters,
/// buffers and options are BatchNorm's, under its names. In eval mode it is BatchNorm, without a
/// collective; without running statistics it then takes those of its own batch.
///
/// Ranks: each training forward makes one collective of 2·C + 1 float64 (mean, squares around it,
/// count), each backward one of 2·C, where x requires a gradient. So every rank runs the module
/// equally often in the same order, and a rank without samples runs it on [0, C, …] and calls
/// backward. Where ranks may use different parameters in one step, give it a group of its own
/// (world.split(0)): its calls must not meet DistributedDataParallel's in another order. Gradients
/// of weight and bias are this rank's part; DistributedDataParallel reduces them. Not inside of
/// recompute(): the running statistics would move twice.
///
/// UsageError: no group in training; another shape; one value per channel, over all ranks, to train
/// on. Source: torch.nn.SyncBatchNorm.
class TRIREME_API SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group = {});
  /// A module in place of one of LibTorch's BatchNorms: the same tensors, so that an optimizer that
  /// has them stays right.
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
/// ModuleList or ModuleDict are replaced by a SyncBatchNorm that takes over their tensors, and each
/// SyncBatchNorm gets the group. Returns how many there are now. Every rank calls it; before or
/// after an optimizer is built.
///
/// A module that a member of somebody's class holds cannot be exchanged in C++. Such a BatchNorm
/// (or one that something else holds too, or root itself) is a UsageError that lists them all and
/// says what to write instead; nothing has been changed then.
TRIREME_API int convert_sync_batch_norm(torch::nn::Module& root, const Group& group);
/// A module holder or a shared_ptr to a module.
template <class Holder>
requires requires(Holder& h) { static_cast<torch::nn::Module&>(*h); }
int convert_sync_batch_norm(Holder& root, const Group& group) {
  return convert_sync_batch_norm(static_cast<torch::nn::Module&>(*root), group);
}

}  // namespace trireme
