// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"

// An optimizer that steps in host memory for parameters of a GPU: its state and float32 weights,
// 12 bytes a parameter with AdamW, are not on the device (ZeRO-Offload; DeepSpeed's
// offload_optimizer.device = cpu). On disk: shard/offload/offload_optimizer.h.
namespace trireme {

///   host_optimizer(parameters, [](NamedTensors p) { return make_adamw(std::move(p)); });
///
/// make: an optimizer of float32 tensors in host memory, under the parameters' names; by
/// offload_optimizer() its state goes on to disk. Of a rank's shards alone, with ShardedParameters
/// or FullySharded: give it their shards.
///
/// Parameters: all float32, or all float16, or all bfloat16; on one device, contiguous. Of half
/// ones the float32 copies are masters, as in with_master_weights(): make it after the weights were
/// loaded or broadcast. Of float32 ones they are twins, taken anew where somebody else has written
/// to the parameter since. Gradients are read from p.grad() in their own dtype and cross as they
/// are; weights come back in the parameters'. Host bytes a parameter: 4 + the inner state + a
/// gradient's; what crosses is in pinned memory where the device is CUDA.
///
/// step: on the current stream; gradients are there when it begins to compute, weights when it
/// returns. UsageError (nothing has changed) as in optim/optimizer.h. state(): the inner one's, and
/// "optim.master.<parameter>" for half parameters. One thread at a time. No rank meets another.
/// Source: Ren et al., "ZeRO-Offload", ATC 2021.
TRIREME_API std::unique_ptr<Optimizer> host_optimizer(NamedTensors parameters,
                                                      const MakeOptimizer& make);

}  // namespace trireme
