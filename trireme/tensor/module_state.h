// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/tensor/state.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace trireme {

/// Visits parameters and buffers as "model.<name>", tied weights under each of their names; of
/// buffers, a save takes rank 0's copies. A parameter of which this rank holds a part
/// (tensor/parameter_layout.h) is visited as the slices of the whole that it is, so that a
/// checkpoint loads into any other split, and into a model that is not divided. A module that is
/// wrapped by DistributedDataParallel or ShardedDataParallel is visited like any other, before or
/// after wrapping. UsageError for parameters whose storage has been freed because a FullySharded
/// holds them; use state_of(sharded).
TRIREME_API StateWalk state_of(const torch::nn::Module& module);
TRIREME_API StateWalk state_of(const torch::jit::Module& module);
template <class Holder>
requires requires(const Holder& h) { static_cast<const torch::nn::Module&>(*h); }
StateWalk state_of(const Holder& module) {
  return state_of(static_cast<const torch::nn::Module&>(*module));
}

/// Passes `t` to `show`, or a contiguous copy of it, which is copied back if `show` writes to it.
TRIREME_API void show_contiguous(const at::Tensor& t, const std::function<void(at::Tensor)>& show);

}  // namespace trireme
