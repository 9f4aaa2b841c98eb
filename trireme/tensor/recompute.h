// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

// Memory for time: what a block computed inside is dropped after its forward, and computed again
// when backward arrives (torch.utils.checkpoint; the file on disk is the "checkpoint" here).
namespace trireme {

using RecomputeFn = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct RecomputeOptions {
  /// Puts LibTorch's generators (CPU, and the GPUs of the tensors) back for the second run, where
  /// the first one drew from them. Our keyed dropout needs nothing of it.
  bool torch_generator = true;
};

/// fn(inputs), keeping only the inputs for backward. Gradients are those of the plain call, bit for
/// bit; each parameter's accumulation, and so each gradient hook, happens once.
///
/// inputs: any; undefined ones and integers too. parameters: every tensor that requires a gradient
/// and that fn reaches otherwise, so `block->parameters()`; a list without repetitions is cheapest.
/// Outputs: at least one, defined. Where no gradient is recorded it is the plain call.
///
/// The second run sees the RandomScope (with its call numbers), LibTorch's generators, and the
/// autocast state of the first one. fn is kept until the graph is freed, and may call recompute()
/// itself. A declared parameter that fn does not use gets no gradient, as in the plain call.
///
/// UsageError, in forward: fn changes an input or a parameter in place. In backward: fn uses a
/// parameter or an activation that was not declared (by name, see name_parameters); a parameter was
/// changed between the runs; the runs differ in shapes or in what they drew; create_graph=true.
TRIREME_API std::vector<at::Tensor> recompute(RecomputeFn fn, const std::vector<at::Tensor>& inputs,
                                              const std::vector<at::Tensor>& parameters,
                                              RecomputeOptions options = {});
/// One tensor in, one out.
TRIREME_API at::Tensor recompute(std::function<at::Tensor(const at::Tensor&)> fn,
                                 const at::Tensor& input, const std::vector<at::Tensor>& parameters,
                                 RecomputeOptions options = {});

/// This thread is inside of a second run: backward through what it computes follows at once.
TRIREME_API bool recomputing();

/// Writes each name into its tensor (Tensor::name()), so that errors can tell it.
TRIREME_API void name_parameters(const NamedTensors& parameters);

}  // namespace trireme
