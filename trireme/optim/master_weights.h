// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/optimizer.h"

// Optimizers for float16 and bfloat16 parameters. An update is often too small to change such a
// weight (bfloat16 resolves 1/256 of its value), so the step is taken on float32 copies, the master
// weights, and the parameters are the rounded masters.
//
// Bytes per parameter with AdamW: 2 weight + 2 gradient + 4 master + 4 + 4 moments = 16, as in
// float32 (4 + 4 + 4 + 4).
namespace trireme {

/// Makes the inner optimizer, which steps float32 tensors under the parameters' names.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;

///   with_master_weights(parameters, [](NamedTensors p) { return make_adamw(std::move(p)); });
///
/// Parameters: all float16 or all bfloat16, otherwise as in optim/optimizer.h; the masters start
/// with their values, so make it after the weights were loaded or broadcast (the next step picks up
/// a later torch::load() or set_data(), but not values written in place). Gradients are read from
/// p.grad() in the parameters' dtype. Its state is that of the inner optimizer and
/// "optim.master.<parameter>". Source: Micikevicius et al., Mixed Precision Training, 2018.
TRIREME_API std::unique_ptr<Optimizer> with_master_weights(NamedTensors parameters,
                                                           const MakeOptimizer& make);

/// Pure half precision (Apex O3): each step starts from the parameters themselves, converted to
/// float32, and what is rounded off is lost. Only the inner state is kept; the float32 copies are
/// scratch memory.
TRIREME_API std::unique_ptr<Optimizer> without_master_weights(NamedTensors parameters,
                                                              const MakeOptimizer& make);

}  // namespace trireme
