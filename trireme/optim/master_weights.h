// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/optimizer.h"

// Optimizers for float16 and bfloat16 parameters. A step's change is often smaller than what such a
// weight can tell from itself (bfloat16: 1/256 of it), so the step is taken on float32 copies, the
// master weights, and the parameters are those rounded.
//
// Bytes a parameter, with AdamW: 2 weight + 2 gradient + 4 master + 4 + 4 moments = 16, as in
// float32 (4 + 4 + 4 + 4).
namespace trireme {

/// Makes the optimizer that steps: of float32 tensors under the parameters' names.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;

///   with_master_weights(parameters, [](NamedTensors p) { return make_adamw(std::move(p)); });
///
/// Parameters: all float16 or all bfloat16, otherwise as in optim/optimizer.h; the masters begin
/// with their values, so make it after the weights were loaded or broadcast (torch::load() and
/// set_data() later are followed by the next step; values written in place are not). Gradients are
/// read from p.grad() in the parameters' dtype. Its state is the inner one's and
/// "optim.master.<parameter>". Source: Micikevicius et al., Mixed Precision Training, 2018.
TRIREME_API std::unique_ptr<Optimizer> with_master_weights(NamedTensors parameters,
                                                           const MakeOptimizer& make);

/// Pure half precision (Apex O3): a step begins with the parameters themselves, in float32, and
/// what rounding takes away is lost. Nothing but the inner state is kept; the float32 copies are
/// scratch.
TRIREME_API std::unique_ptr<Optimizer> without_master_weights(NamedTensors parameters,
                                                              const MakeOptimizer& make);

}  // namespace trireme
