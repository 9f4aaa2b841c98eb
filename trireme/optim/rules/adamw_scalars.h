// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/rules/rule_kernels.h"

// Inside optim.
namespace trireme {

/// Of step `t` (from 1) of a parameter or of a table's rows, with this weight decay.
inline AdamWScalars adamw_scalars(const AdamWOptions& options, int64_t t, double lr, double decay,
                                  double grad_scale) {
  const bool frozen = options.freeze_step > 0 && t > options.freeze_step;
  AdamWScalars s;
  s.grad_scale = grad_scale;
  s.l2 = options.decoupled ? 0 : decay;
  s.keep = options.decoupled ? 1 - lr * decay : 1;
  s.beta1 = options.beta1;
  s.beta2 = options.beta2;
  s.eps = options.eps;
  s.step_size = lr;
  if (options.bias_correction) {
    s.step_size = lr / (1 - std::pow(options.beta1, static_cast<double>(t)));
    const int64_t moved = frozen ? options.freeze_step : t;
    s.root_scale = 1 / std::sqrt(1 - std::pow(options.beta2, static_cast<double>(moved)));
  }
  if (frozen) s.beta2 = 1;
  return s;
}

}  // namespace trireme
