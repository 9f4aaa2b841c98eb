// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "trireme/comm/group.h"

// The calls of codecs, whose bytes are in host memory whatever device the gradients are on. A group
// that takes the host's tensors gets them as they are; one that takes `device`'s alone (nccl) gets
// copies there, and the result is copied back in wait(). Not to be issued in a gradient hook,
// except where the gradients are the CPU's. All ranks of the group call, in one order.
namespace trireme::host_calls {

Work all_reduce(Group group, const at::Tensor& t, at::Device device, ReduceOp op = ReduceOp::sum,
                CallSite site = CallSite::here());
Work all_gather(Group group, const at::Tensor& all, const at::Tensor& own, at::Device device,
                CallSite site = CallSite::here());
Work all_to_all(Group group, const at::Tensor& got, const at::Tensor& sent, at::Device device,
                CallSite site = CallSite::here());

}  // namespace trireme::host_calls
