// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/tensor/parameter_table.h"

// Clipping. For your own loop: clip_grad_norm_ and clip_grad_value_, with the names, arguments and
// results of torch.nn.utils; if a rank holds parts of gradients (ZeRO), use the members of
// ShardedParameters with these names. For our optimizers: grad_norm(), whose coefficient goes into
// the step's grad_scale, so that gradients are not modified.
namespace trireme {

/// torch.nn.utils.clip_grad_norm_: if the norm of all gradients together exceeds max_norm,
/// multiplies them by max_norm / (norm + 1e-6) in place. Returns the norm before clipping.
/// `norm_type`: any number above 0; infinity means the largest absolute value. For complex
/// gradients, the norm is that of their absolute values. A norm that is not finite makes gradients
/// NaN, as in torch, or with error_if_nonfinite throws NumericError and leaves gradients unchanged.
/// After DDP's backward all ranks have the same gradients, so each clips by itself. UsageError for
/// a negative max_norm or a sparse gradient.
TRIREME_API double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                   double norm_type = 2, bool error_if_nonfinite = false);
TRIREME_API double clip_grad_norm_(const NamedTensors& parameters, double max_norm,
                                   double norm_type = 2, bool error_if_nonfinite = false);
/// The same for whole parameters of which `tensors` are the parts that this rank holds. The result
/// is the same on every rank, and for norm_type 2 and infinity it is bit-identical to that of one
/// rank that holds everything. Every rank calls it.
TRIREME_API double clip_grad_norm_(const NamedTensors& tensors, const NormParts& parts,
                                   double max_norm, double norm_type, bool error_if_nonfinite);

/// torch.nn.utils.clip_grad_value_: clamps every element of every gradient to [-clip_value,
/// clip_value] in place. Also works on shards, since it needs no communication. UsageError for a
/// negative value, or a sparse or complex gradient.
TRIREME_API void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);
TRIREME_API void clip_grad_value_(const NamedTensors& parameters, double clip_value);

struct GradNorm {
  double norm = 0;  // of the scaled gradients; NaN or infinite when `finite` is false
  /// The factor min(1, max_norm / (norm + 1e-6)); 1 when clipping is off or `finite` is false.
  double coefficient = 1;
  bool finite = true;  // whether every gradient element is finite
};

/// The norm of grad_scale × all gradients (a parameter without a gradient counts as zeros, one
/// listed under two names counts once). `max_norm` 0: no clipping. Squares are added in float64
/// within each 1,024-element block from each parameter's start, and blocks in the order of
/// `parameters` by a tree that depends only on shapes: the same bits in every run and on every
/// rank. Reads p.grad() of any float dtype. UsageError for a negative max_norm or a sparse
/// gradient.
TRIREME_API GradNorm grad_norm(const NamedTensors& parameters, double max_norm = 0,
                               double grad_scale = 1);
/// The same for whole parameters of which `tensors` are the parts that this rank holds. The result
/// is the same on every rank, and bit-identical to that of one rank that holds everything. Every
/// rank calls it.
TRIREME_API GradNorm grad_norm(const NamedTensors& tensors, const NormParts& parts, double max_norm,
                               double grad_scale);

/// The name of the first parameter whose gradient contains a NaN or an infinity; "" if there is
/// none.
TRIREME_API std::string first_non_finite(const NamedTensors& parameters);
/// The same over all ranks; every rank calls it.
TRIREME_API std::string first_non_finite(const NamedTensors& tensors, const NormParts& parts);

}  // namespace trireme
