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

/// Parameters and buffers as "model.<name>": tied weights under each of their names, buffers as
/// tensors of which a save takes rank 0's. A module that DistributedDataParallel or
/// ShardedDataParallel wraps is shown like any other, before or after it was wrapped. UsageError
/// for parameters without bytes, which a FullySharded holds: show state_of(sharded).
TRIREME_API StateWalk state_of(const torch::nn::Module& module);
TRIREME_API StateWalk state_of(const torch::jit::Module& module);
template <class Holder>
requires requires(const Holder& h) { static_cast<const torch::nn::Module&>(*h); }
StateWalk state_of(const Holder& module) {
  return state_of(static_cast<const torch::nn::Module&>(*module));
}

/// Shows `t`, or a contiguous copy of it that is written back where it was loaded.
TRIREME_API void show_contiguous(const at::Tensor& t, const std::function<void(at::Tensor)>& show);

}  // namespace trireme
