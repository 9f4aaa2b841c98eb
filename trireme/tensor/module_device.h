// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "trireme/base/export.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// Moves parameters, their gradients and buffers to a device, as Module::to() does, and to every
/// kind of device (LibTorch 1.13's moves none to PrivateUse1). Tensors keep their identity, so that
/// tied weights stay tied and an optimizer made before keeps its parameters. Those that are there
/// already stay as they are. Before anything holds the parameters' gradient accumulators: hooks on
/// them are lost, as with Module::to(). Not while a forward's graph exists. Copies are in the order
/// of the current stream; the host's memory may change when it returns.
TRIREME_API void move_module(torch::nn::Module& module, at::Device where);

/// The one device of a module's parameters and buffers; the CPU if it has none. UsageError, naming
/// a tensor on each, if there are two.
TRIREME_API at::Device device_of(const torch::nn::Module& module);

}  // namespace trireme
