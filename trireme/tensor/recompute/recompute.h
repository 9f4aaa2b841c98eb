// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

// Trades time for memory: a block's intermediate results are dropped after its forward and computed
// again when backward reaches it. (torch.utils.checkpoint; in Trireme, "checkpoint" means the files
// on disk.)
namespace trireme {

using RecomputeFn = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct RecomputeOptions {
  /// Restores LibTorch's generators (CPU, and the GPUs of the tensors) for the second run if the
  /// first one drew from them. Our keyed dropout does not need this.
  bool torch_generator = true;
};

/// Calls fn(inputs) and keeps only the inputs for backward. Gradients equal those of the plain
/// call, bit for bit; each parameter's gradient is accumulated once, so each gradient hook runs
/// once.
///
/// inputs: any tensors, including undefined and integer ones. parameters: every tensor requiring a
/// gradient that fn uses without receiving it as an input, so usually `block->parameters()`; a list
/// without duplicates is cheapest. fn returns at least one tensor, all of them defined. If no
/// gradient is being recorded, this is the plain call.
///
/// The second run sees the RandomScope (with its call numbers), the state of LibTorch's generators
/// and the autocast settings of the first one. fn is kept until the graph is freed and may itself
/// call recompute(). A declared parameter that fn does not use gets no gradient, as in the plain
/// call.
///
/// UsageError in forward: fn changes an input or a parameter in place. UsageError in backward: fn
/// uses a parameter or an activation that was not declared (the message gives its name, see
/// name_parameters); a parameter was changed between the runs; the runs differ in shapes or in the
/// random numbers they drew; create_graph=true.
TRIREME_API std::vector<at::Tensor> recompute(RecomputeFn fn, const std::vector<at::Tensor>& inputs,
                                              const std::vector<at::Tensor>& parameters,
                                              RecomputeOptions options = {});
/// For a function of one tensor that returns one.
TRIREME_API at::Tensor recompute(std::function<at::Tensor(const at::Tensor&)> fn,
                                 const at::Tensor& input, const std::vector<at::Tensor>& parameters,
                                 RecomputeOptions options = {});

/// Whether this thread is inside a second run; backward through its results follows immediately.
TRIREME_API bool recomputing();

/// Stores each name in its tensor (Tensor::name()), so that error messages can mention it.
TRIREME_API void name_parameters(const NamedTensors& parameters);

}  // namespace trireme
