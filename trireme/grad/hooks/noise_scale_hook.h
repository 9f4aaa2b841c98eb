// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/hooks/noise_scale.h"

namespace trireme {

/// Σ of squares of a flat tensor of any float dtype, added to `into` (a float64 scalar on its
/// device): float32 in blocks of 65,536, float64 across them. Waits for nothing.
TRIREME_API void add_squares(const at::Tensor& flat, at::Tensor& into);

/// Around a communication hook: what this rank alone gives to each bucket is measured before it is
/// reduced, so that the ranks' gradients can be held against the reduced one. One pass over the
/// gradients, no copy; the reduction and its bits are the inner hook's.
///
///   NoiseScaleHook parts;
///   DistributedDataParallel ddp(net, world, {.hook = parts.hook()});
///   NoiseScale noise;
///   …  loss.backward();          // and with the norm of the gradients that are there now:
///   noise.add(parts.take(world, my_samples, 1.0 / world.size(), norm, all_samples));
class TRIREME_API NoiseScaleHook {
 public:
  explicit NoiseScaleHook(CommHook inner = {});  // empty: all_reduce
  /// Keeps what it needs alive.
  CommHook hook() const;

  /// Ends a step: one sum over ranks of three numbers, every rank calls it. weight: what this
  /// rank's gradient is a sum or mean over (samples or tokens; 0: it had none). scale: times what
  /// the ranks gave, added up, is the mean gradient: 1/ranks for a bare DDP, 1/total weight where
  /// gradients are sums. norm: of that mean gradient. samples: of all ranks.
  GradientParts take(Group& group, double weight, double scale, double norm, double samples);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
