// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"

// Differentiable collectives: each rank's output is a function of every rank's input, and backward
// runs the collective that carries gradients the other way. The scalar being differentiated is the
// sum of all ranks' losses, so the gradient of a rank's input is the derivative of that total with
// respect to it.
//
// They return new tensors and block. Every rank must run them, forward and backward, in the same
// order.
namespace trireme::functional {

/// `op` is sum, avg or premul_sum. Backward: all_reduce of the gradients, scaled alike.
TRIREME_API at::Tensor all_reduce(const at::Tensor& input, Group group, Reduction op = {},
                                  CallSite site = CallSite::here());
/// Inputs have equal shapes. The output has a new first dim of size(), indexed by rank. Backward:
/// reduce_scatter.
TRIREME_API at::Tensor all_gather(const at::Tensor& input, Group group,
                                  CallSite site = CallSite::here());
/// input: [size(), …]. Returns the sum or avg of every rank's input[rank()]. Backward: all_gather.
TRIREME_API at::Tensor reduce_scatter(const at::Tensor& input, Group group, Reduction op = {},
                                      CallSite site = CallSite::here());
/// Exchanges rows of dim 0: input_splits[r] rows go to rank r and output_splits[r] rows come from
/// it; if both are empty, the parts are equal. Backward: the reverse exchange.
TRIREME_API at::Tensor all_to_all_single(const at::Tensor& input, Group group,
                                         std::vector<int64_t> output_splits = {},
                                         std::vector<int64_t> input_splits = {},
                                         CallSite site = CallSite::here());
/// Returns the root's input on every rank. Backward: a reduce to the root; other ranks' inputs get
/// zero gradients.
TRIREME_API at::Tensor broadcast(const at::Tensor& input, Group group, int root,
                                 CallSite site = CallSite::here());

}  // namespace trireme::functional
