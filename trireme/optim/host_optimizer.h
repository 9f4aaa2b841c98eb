// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"

// An optimizer that steps in host memory for parameters on a GPU: its state and float32 weights, 12
// bytes per parameter with AdamW, are not on the device (ZeRO-Offload; DeepSpeed's
// offload_optimizer.device = cpu). On disk: shard/offload/offload_optimizer.h.
namespace trireme {

///   host_optimizer(parameters, [](NamedTensors p) { return make_adamw(std::move(p)); });
///
/// make: creates an optimizer for float32 tensors in host memory, under the parameters' names; if
/// it uses offload_optimizer(), the state moves on to disk. With ShardedParameters or FullySharded,
/// pass their shards as the parameters.
///
/// Parameters: all float32, or all float16, or all bfloat16; on one device, contiguous. For
/// half-precision parameters the float32 copies are masters, as in with_master_weights(): make the
/// optimizer after the weights were loaded or broadcast. For float32 parameters they are copies,
/// refreshed if something else has written to the parameter since. Gradients are read from p.grad()
/// and transferred in their own dtype; weights return in that of the parameters. Host bytes per
/// parameter: 4 + the inner state + a gradient's; transfers use pinned memory if the device is
/// CUDA.
///
/// step() runs on the current stream; gradients have arrived when it begins to compute, weights
/// when it returns. UsageError (nothing has changed) as in optim/optimizer.h. state(): the inner
/// optimizer's, and "optim.master.<parameter>" for half-precision parameters. One thread at a time.
/// No communication between ranks. Source: Ren et al., "ZeRO-Offload", ATC 2021.
TRIREME_API std::unique_ptr<Optimizer> host_optimizer(NamedTensors parameters,
                                                      const MakeOptimizer& make);

}  // namespace trireme
