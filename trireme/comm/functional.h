// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"

// Collectives that autograd goes through: what each rank gets is a function of every rank's input,
// and backward is the collective that carries gradients the other way. The scalar that is
// differentiated is the sum of all ranks' losses: a rank's gradient is what its input adds to all
// of them.
//
// They return new tensors and wait. Every rank calls them, forward and backward, in the same order.
// Upstream: torch.distributed.nn.functional.
namespace trireme::functional {

/// sum, avg or premul_sum. Backward: all_reduce of the gradients, scaled alike.
TRIREME_API at::Tensor all_reduce(const at::Tensor& input, Group group, Reduction op = {},
                                  CallSite site = CallSite::here());
/// Of equal shapes: a new first dim of size(), by rank. Backward: reduce_scatter.
TRIREME_API at::Tensor all_gather(const at::Tensor& input, Group group,
                                  CallSite site = CallSite::here());
/// input: [size(), …]; sum or avg of every rank's input[rank()]. Backward: all_gather.
TRIREME_API at::Tensor reduce_scatter(const at::Tensor& input, Group group, Reduction op = {},
                                      CallSite site = CallSite::here());
/// Rows of dim 0: input_splits[r] go to rank r, output_splits[r] come from it; both empty: equal
/// parts. Backward: the other way.
TRIREME_API at::Tensor all_to_all_single(const at::Tensor& input, Group group,
                                         std::vector<int64_t> output_splits = {},
                                         std::vector<int64_t> input_splits = {},
                                         CallSite site = CallSite::here());
/// The root's input, on every rank. Backward: a reduce to the root; the others' inputs get zeros.
TRIREME_API at::Tensor broadcast(const at::Tensor& input, Group group, int root,
                                 CallSite site = CallSite::here());

}  // namespace trireme::functional
