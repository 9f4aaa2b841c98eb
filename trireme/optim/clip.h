// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/tensor/parameter_table.h"

// Clipping by the global 2-norm, as torch's clip_grad_norm_, except that gradients are not touched:
// the coefficient is multiplied into the optimizer's grad_scale.
namespace trireme {

struct GradNorm {
  double norm = 0;  // of the scaled gradients; NaN or infinite when `finite` is false
  double coefficient =
      1;  // min(1, max_norm / (norm + 1e-6)); 1 when clipping is off or `finite` is false
  bool finite = true;  // every gradient element is a finite number
};

/// The norm of grad_scale × all gradients (a parameter without one counts as zeros, one that is
/// listed under two names counts once). `max_norm` 0: no clipping. Squares are added in float64 per
/// 1,024-element block from each parameter's start, blocks in the order of `parameters` by a tree
/// that depends on shapes alone: the same bits in every run and on every rank. Reads p.grad(), any
/// float dtype. UsageError for a negative max_norm or a sparse gradient.
TRIREME_API GradNorm grad_norm(const NamedTensors& parameters, double max_norm = 0,
                               double grad_scale = 1);
/// Of whole parameters, where `tensors` are the parts of them that this rank holds: the same on
/// every rank, and bit for bit what one rank with everything gets. All of them call it.
TRIREME_API GradNorm grad_norm(const NamedTensors& tensors, const NormParts& parts, double max_norm,
                               double grad_scale);

/// The name of the first parameter whose gradient holds a NaN or an infinity; "" when there is
/// none.
TRIREME_API std::string first_non_finite(const NamedTensors& parameters);
/// … on any rank.
TRIREME_API std::string first_non_finite(const NamedTensors& tensors, const NormParts& parts);

}  // namespace trireme
