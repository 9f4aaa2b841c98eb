// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "trireme/rpc/future.h"

namespace trireme::rpc {

/// Parameters of one worker that a DistributedOptimizer steps: how its optimizer is called there,
/// within the context that the thread is in.
struct OptimizedPart {
  std::function<Future<double>()> norm;  // of its gradients
  std::function<Future<int64_t>(double lr, double grad_scale)> step;
};

}  // namespace trireme::rpc
