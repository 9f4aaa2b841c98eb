// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/hooks/noise_scale.h"

namespace trireme {

/// Adds the sum of squares of a flat tensor of any float dtype to `into` (a float64 scalar on its
/// device): float32 within blocks of 65,536, float64 across them. Does not synchronise with the
/// device.
TRIREME_API void add_squares(const at::Tensor& flat, at::Tensor& into);

/// Wraps a communication hook and measures this rank's own contribution to each bucket before it is
/// reduced, so that the ranks' gradients can be compared with the reduced one. One pass over the
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
  /// The returned hook keeps what it needs alive.
  CommHook hook() const;

  /// Ends a step with a sum of three numbers over ranks; every rank calls it. weight: the samples
  /// or tokens over which this rank's gradient is a sum or mean (0: it had none). scale: the factor
  /// that turns the sum of the ranks' gradients into the mean gradient: 1/ranks for a bare DDP,
  /// 1/total weight if gradients are sums. norm: the norm of that mean gradient. samples: the
  /// number over all ranks.
  GradientParts take(Group& group, double weight, double scale, double norm, double samples);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
