// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

namespace trireme::pretend {

/// module.to(where), which LibTorch 1.13 refuses to a device of one's own: its set_data() takes a
/// tensor from one of its own devices to another only. Parameters and buffers stay the same
/// tensors. Before the first backward.
void move_to(torch::nn::Module& module, c10::Device where);

}  // namespace trireme::pretend
